"""The history as znodes. Each entry is a node that never changes, or several; `history` itself has
the number of the next one, and its version tells whether anybody has written in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.codec.history import (
    HistoryHead,
    decode_entry,
    encode_entry,
    mark_of,
    marks_in,
    node_names,
)
from state.codec.values import decode, encode
from state.store.history import HistoryEntry, HistoryIndex, HistoryMark
from state.znodes.fence import in_transactions
from state.znodes.nodes import Nodes
from state.znodes.tree import Create, Delete, Operation, Set

if TYPE_CHECKING:
    from collections.abc import Sequence


class HistoryZnodes(Nodes):
    """A `HistoryStore`."""

    def index(self) -> HistoryIndex:
        path = self._paths.history
        # The head first: what is written in between makes it outdated, and a write is refused.
        head = self._read(path)
        if head is None:
            return HistoryIndex()
        stored = decode(head.data, HistoryHead, path)
        marks, left = marks_in(self._names(path))
        return HistoryIndex(tuple(marks), stored.next, head.version, tuple(left))

    def read(self, marks: Sequence[HistoryMark]) -> list[HistoryEntry | None]:
        paths = [[self._paths.history_part(name) for name in node_names(mark)] for mark in marks]
        nodes = iter(self._tree.read([path for parts in paths for path in parts]))
        found: list[HistoryEntry | None] = []
        for mark, parts in zip(marks, paths, strict=True):
            data = [node.data for node in (next(nodes) for _ in parts) if node is not None]
            whole = len(data) == len(parts)
            found.append(decode_entry(mark, data, parts[0]) if whole else None)
        return found

    def write(
        self,
        index: HistoryIndex,
        entries: Sequence[tuple[int, HistoryEntry]],
        *,
        remove: Sequence[HistoryMark] = (),
    ) -> HistoryIndex:
        path = self._paths.history
        added = [mark_of(number, entry) for number, entry in entries]
        following = max([index.next, *(mark.number + 1 for mark in added)])
        data = encode(HistoryHead(next=following), path)
        creations = [
            Create(self._paths.history_part(name), part)
            for mark, (_, entry) in zip(added, entries, strict=True)
            for name, part in zip(node_names(mark), encode_entry(entry), strict=True)
        ]
        gone = [*index.leftovers, *(name for mark in remove for name in node_names(mark))]
        deletions = [Delete(self._paths.history_part(name)) for name in gone]
        version = index.version
        transactions = list(in_transactions(creations)) or [[]]
        # The head goes with every part, so that two writers never mix; what entries take the place
        # of goes with the last part: a writer that is stopped leaves an entry twice, never none.
        for at, transaction in enumerate(transactions):
            head: Operation = Create(path, data) if version is None else Set(path, data, version)
            is_last = at == len(transactions) - 1
            self._fence.write([head, *(deletions if is_last else []), *transaction])
            version = 0 if version is None else version + 1
        kept = [mark for mark in index.marks if mark not in set(remove)]
        marks = sorted([*kept, *added], key=lambda mark: (mark.number, mark.time_ms))
        return HistoryIndex(tuple(marks), following, version)
