"""The pause of an application, which any operator may begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


class Pause(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pause of the application: it keeps its ownership and reads nothing. The node's existence is
    the pause. What it holds is for people, and may be missing.

    - `by`: who paused it. `since_ms`: when, by that machine's clock. `reason`: as it was given.
    """

    by: str | None = None
    since_ms: int | None = None
    reason: str | None = None
    format: int = 1


class PauseStore(Protocol):
    """The pause. Nothing is fenced.

    Needs: creation only where there is none; a watch.
    """

    def begin(self, pause: Pause) -> Pause:
        """Pause the application, unless it is paused. Returns the stored pause: `pause`, or an
        earlier one. Idempotent. Needs no ownership.
        """
        ...

    def end(self) -> Pause | None:
        """End the pause. Returns the pause that this call has ended; None if there was none. Needs
        no ownership.
        """
        ...

    def read(self) -> Pause | None:
        """The pause, or None while the application is not paused. Its content may be anything: what
        cannot be read of it is left out. Needs no ownership.
        """
        ...

    def watch(self, callback: Callable[[], None]) -> None:
        """Watch the pause until `close`, as `ShardListStore.watch` does the shard list."""
        ...
