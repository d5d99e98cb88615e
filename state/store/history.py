"""The history of an application's progress, to which it can be rewound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from state.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """What became known of the application's progress at one time (`state.moves`).

    - `time_ms`: the service's time; all of it was so by then.
    - `positions`: by shard, a position before which every record was acked: of all shards. Of an
      entry that is not `full`, which earlier versions wrote, of those that had changed.
    - `cause`: the command by which an operator moved the application; None if none did.
    """

    time_ms: int
    positions: Mapping[str, Position]
    full: bool = False
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HistoryMark:
    """An entry of the history without its content. `number`: its place among the others.
    `moved`: an operator has moved the application. `parts`: in how many nodes it is.
    """

    number: int
    time_ms: int
    full: bool
    moved: bool
    parts: int = 1


@dataclass(frozen=True, slots=True)
class HistoryIndex:
    """The entries of the history in the order in which they were written, the number of the `next`
    one, and the list's `version`; None before the first entry. `leftovers`: names of nodes that a
    writer left when it was stopped; they are no entries.
    """

    marks: tuple[HistoryMark, ...] = ()
    next: int = 0
    version: int | None = None
    leftovers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMove:
    """The newest move of the application by an operator, as the history tells it.

    - `cause`: the command: `set`, `rewind` or `import`. `time_ms`: by when it was done.
    - `back`, `forward`: the shards that it has set back, and forward: what lay between was skipped.
    """

    cause: str
    time_ms: int
    back: frozenset[str] = frozenset()
    forward: frozenset[str] = frozenset()


class HistoryStore(Protocol):
    """The history.

    Needs: transactions of creations and removals with a compare-and-set of the list and the fence.
    """

    def index(self) -> HistoryIndex:
        """The entries of the history. Needs no ownership."""

    def read(self, marks: Sequence[HistoryMark]) -> list[HistoryEntry | None]:
        """These entries; None for one that was removed meanwhile. Needs no ownership."""

    def write(
        self,
        index: HistoryIndex,
        entry: HistoryEntry,
        *,
        remove: Sequence[HistoryMark] = (),
    ) -> HistoryIndex:
        """Add an entry to the history that was listed as `index`, and remove others. Returns the
        list as it is then. An entry never changes.

        One transaction, unless the entry is too large for one: then entries are removed in the last
        one. A write of the owner; raises `ConflictError` when another process has written since
        `index`.
        """
