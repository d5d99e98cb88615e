"""Checked rows of a frame, in columns, and the runs of them that make a request. Pure.

Rows stay in Arrow until their request is made: nothing is computed row by row.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.service.record_putter import (
    REQUEST_BYTES,
    REQUEST_RECORDS,
    OutgoingColumns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_KEY_BYTES = 8
_KEY_CHARACTERS = 2 * _KEY_BYTES


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Rows of one stream that can be put. `data` is binary, `keys` text without nulls; `sizes`: the
    bytes of data and key.
    """

    data: pa.Array
    keys: pa.Array
    hash_keys: pa.Array | None
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def size_bytes(self) -> int:
        return int(self.sizes.sum())

    def columns(self) -> OutgoingColumns:
        return OutgoingColumns(
            self.keys.to_pylist(),
            self.data.to_pylist(),
            None if self.hash_keys is None else self.hash_keys.to_pylist(),
        )

    def take(self, rows: NDArray[np.int64]) -> SinkRows:
        """The rows of these indexes."""
        indexes = pa.array(rows)
        return SinkRows(
            self.data.take(indexes),
            self.keys.take(indexes),
            None if self.hash_keys is None else self.hash_keys.take(indexes),
            self.sizes[rows],
        )

    def runs(self, *, by_key: bool) -> Iterator[SinkRows]:
        """The rows in runs that fit into one request each, in their order. A row that is too large
        by itself is alone in its run.

        `by_key`: a run has each key once, and only the rows of a key are in their order: first the
        first rows of all keys, then their second rows, and so on.
        """
        if not by_key or pc.count_distinct(self.keys).as_py() == len(self):
            yield from self._cut(0, len(self))
            return
        order, starts = _turns(self.keys)
        turns = self.take(order)
        for start, stop in zip(starts, [*starts[1:], len(self)], strict=True):
            yield from turns._cut(start, stop)  # noqa: SLF001  # of its own kind

    def _cut(self, start: int, stop: int) -> Iterator[SinkRows]:
        ends = np.cumsum(self.sizes)
        while start < stop:
            limit = ends[start] - self.sizes[start] + REQUEST_BYTES
            fitting = int(np.searchsorted(ends, limit, side="right"))
            end = max(start + 1, min(start + REQUEST_RECORDS, fitting, stop))
            yield self._slice(start, end)
            start = end

    def _slice(self, start: int, stop: int) -> SinkRows:
        return SinkRows(
            self.data[start:stop],
            self.keys[start:stop],
            None if self.hash_keys is None else self.hash_keys[start:stop],
            self.sizes[start:stop],
        )


def _turns(keys: pa.Array) -> tuple[NDArray[np.int64], list[int]]:
    """The indexes of the first row of each key, then those of the second rows, and so on, and where
    in them each turn begins.
    """
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    by_key = np.argsort(codes, kind="stable")
    is_first = np.diff(codes[by_key], prepend=-1) != 0
    firsts = np.flatnonzero(is_first)
    positions = np.arange(len(codes))
    turn = np.empty(len(codes), np.int64)
    turn[by_key] = positions - np.repeat(firsts, np.diff(firsts, append=len(codes)))
    order = np.argsort(turn, kind="stable")
    starts = np.flatnonzero(np.diff(turn[order], prepend=-1))
    return order, starts.tolist()


def without_nulls(keys: pa.Array | None, count: int) -> pa.Array:
    """The partition keys of `count` rows, with a random one where there is none."""
    if keys is None:
        return random_keys(count)
    if keys.null_count == 0:
        return keys
    return pc.coalesce(keys, random_keys(count).cast(keys.type))


def random_keys(count: int) -> pa.Array:
    """Partition keys that spread the records over all shards. Not of a generator of this process,
    since a fork must not repeat its parent's keys.
    """
    texts = os.urandom(_KEY_BYTES * count).hex().encode()
    ends = np.arange(0, _KEY_CHARACTERS * (count + 1), _KEY_CHARACTERS, dtype=np.int64)
    return pa.LargeStringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(texts))
