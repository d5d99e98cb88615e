"""Where the records of a shard come from: the seam between what is decided of them and what is
fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page


class PageSource(Protocol):
    """Pages in the shard's order, that others add to. `drop` removes a page if it still is the
    first.
    """

    def first(self) -> Page | None: ...

    def drop(self, page: Page) -> None: ...
