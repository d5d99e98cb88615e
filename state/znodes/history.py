"""The history as znodes. Each entry is a node that never changes, or several; `history` itself has
the number of the next one, and its version tells whether anybody has written in between.

An entry is compressed JSON, because all shards' positions are alike:

    zlib({"format": 1, "positions": {"<shardId>": "<position>"}, "cause": ...})

Number, time and kind of an entry are in the names of its nodes. An entry of many shards is in
several nodes, each of which has some of the shards.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import msgspec

from state.codec.values import decode, encode, encode_unchecked
from state.errors import StoredDataError
from state.position import Position
from state.store.history import HistoryEntry, HistoryIndex, HistoryMark, HistoryStore
from state.znodes.fence import Nodes, in_transactions
from state.znodes.tree import Create, Delete, Operation, Set

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HISTORY_FORMAT = 1
MAX_SHARDS_PER_PART = 4_000
_LEVEL = 1  # a tenth larger than with the best one, in a third of its time
_NAME = re.compile(r"(\d{10,})-(\d+)-(changes|full|moved)-(\d+)-of-(\d+)", re.ASCII)


class HistoryHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `history`, which each write writes: the number of the next entry."""

    next: int
    format: int = HISTORY_FORMAT


class _StoredHistoryEntry(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    positions: dict[str, Position]
    cause: str | None = None
    format: int = msgspec.field(default=0)


def mark_of(number: int, entry: HistoryEntry) -> HistoryMark:
    """The mark of an entry that is stored with this number."""
    return HistoryMark(
        number=number,
        time_ms=entry.time_ms,
        full=entry.full,
        moved=entry.cause is not None,
        parts=max(1, -(-len(entry.positions) // MAX_SHARDS_PER_PART)),
    )


def node_names(mark: HistoryMark) -> list[str]:
    """The names of the entry's nodes."""
    kind = "moved" if mark.moved else "full" if mark.full else "changes"
    return [
        f"{mark.number:010}-{mark.time_ms}-{kind}-{part}-of-{mark.parts}"
        for part in range(mark.parts)
    ]


def marks_in(names: Iterable[str]) -> tuple[list[HistoryMark], list[str]]:
    """The marks of the entries whose nodes are all there, in order; and the names of the others."""
    there = set(names)
    marks = {
        HistoryMark(
            number=int(found[1]),
            time_ms=int(found[2]),
            full=found[3] != "changes",
            moved=found[3] == "moved",
            parts=int(found[5]),
        )
        for found in map(_NAME.fullmatch, there)
        if found is not None
    }
    whole = [mark for mark in marks if there.issuperset(node_names(mark))]
    left = there.difference(*(node_names(mark) for mark in whole))
    return sorted(whole), sorted(left)


def encode_entry(entry: HistoryEntry) -> list[bytes]:
    """The values of the entry's nodes."""
    shards = sorted(entry.positions.items())
    stored = (
        _StoredHistoryEntry(
            positions=dict(shards[first : first + MAX_SHARDS_PER_PART]),
            cause=entry.cause,
            format=HISTORY_FORMAT,
        )
        for first in range(0, max(len(shards), 1), MAX_SHARDS_PER_PART)
    )
    return [zlib.compress(encode_unchecked(part), _LEVEL) for part in stored]


def decode_entry(mark: HistoryMark, parts: Sequence[bytes], path: str) -> HistoryEntry:
    """What `encode_entry` gave. Raises `StoredDataError`."""
    stored = [_decoded(data, path) for data in parts]
    return HistoryEntry(
        time_ms=mark.time_ms,
        positions={shard: at for part in stored for shard, at in part.positions.items()},
        full=mark.full,
        cause=stored[0].cause,
    )


def _decoded(data: bytes, path: str) -> _StoredHistoryEntry:
    try:
        text = zlib.decompress(data)
    except zlib.error as exc:
        raise StoredDataError(
            f"znode {path} contains {data[:80]!r}, which is not an entry of the checkpoint "
            f"history ({exc})",
            "remove the znode; `kinesis-spout checkpoint rewind` then uses an older entry",
        ) from exc
    return decode(text, _StoredHistoryEntry, path, newest_format=HISTORY_FORMAT)


class HistoryZnodes(Nodes, HistoryStore):
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
        data = self._values({path: path for parts in paths for path in parts}, lambda data, _: data)
        return [
            decode_entry(mark, [data[path] for path in parts], parts[0])
            if data.keys() >= set(parts)
            else None
            for mark, parts in zip(marks, paths, strict=True)
        ]

    def write(
        self,
        index: HistoryIndex,
        entry: HistoryEntry,
        *,
        remove: Sequence[HistoryMark] = (),
    ) -> HistoryIndex:
        path = self._paths.history
        added = mark_of(index.next, entry)
        data = encode(HistoryHead(next=index.next + 1), path)
        creations = [
            Create(self._paths.history_part(name), part)
            for name, part in zip(node_names(added), encode_entry(entry), strict=True)
        ]
        gone = [*index.leftovers, *(name for mark in remove for name in node_names(mark))]
        deletions = [Delete(self._paths.history_part(name)) for name in gone]
        version = index.version
        transactions = list(in_transactions(creations))
        # The head goes with every part, so that two writers never mix. The others are removed with
        # the last part: a writer that is stopped leaves one entry too many, never one too few.
        for at, transaction in enumerate(transactions):
            head: Operation = Create(path, data) if version is None else Set(path, data, version)
            is_last = at == len(transactions) - 1
            self._fence.write([head, *(deletions if is_last else []), *transaction])
            version = 0 if version is None else version + 1
        removed = set(remove)
        kept = [mark for mark in index.marks if mark not in removed]
        return HistoryIndex((*kept, added), index.next + 1, version)
