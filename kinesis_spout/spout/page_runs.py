"""Cuts a shard's buffered pages into runs of records, in order. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kinesis_spout.service.record_columns import NO_LISTS
from kinesis_spout.spout.record_run import RecordRun

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page

RUN_RECORDS = 1_000


class PageSource(Protocol):
    """A buffer of pages in the shard's order, which another thread fills. `drop` removes `page` if
    it is still the first.
    """

    def first(self) -> Page | None: ...

    def drop(self, page: Page) -> None: ...


class PageRuns:
    """The runs of a shard. `last_page` is the newest page whose records were all taken; it was
    dropped from `source`. `source` None: there are no pages.
    """

    def __init__(self, source: PageSource | None) -> None:
        self.last_page: Page | None = None
        self._source = source
        self._page: Page | None = None
        self._records = NO_LISTS  # of the current page
        self._taken = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all records up to the shard's end were taken."""
        return self.last_page is not None and self.last_page.ended

    @property
    def tip_ms(self) -> int | None:
        """The service's time when the shard was at its tip or its end, if all records up to there
        were taken; else None.
        """
        page = self.last_page
        if page is None or self._page is not None or not (page.at_tip or page.ended):
            return None
        return page.service_time_ms

    def next_run(self) -> RecordRun | None:
        """The next records, at most 1,000, skipping empty pages. None when there are none now."""
        while self._taken >= len(self._records.numbers):
            if not self._turn_page():
                return None
        run = RecordRun(*self._records.part(self._taken, self._taken + RUN_RECORDS))
        self._taken += run.size
        return run

    def _turn_page(self) -> bool:
        """Drop the page that was taken and go on to the next. False when there is none."""
        if self._source is None:
            return False
        if self._page is not None:
            self._source.drop(self._page)
            self.last_page = self._page
        self._page = self._source.first()
        self._records = NO_LISTS if self._page is None else self._page.columns.lists()
        self._taken = 0
        return self._page is not None
