"""Rows for Spark from decoded pages, as Arrow columns: no Python code runs per record.

A record is a row, or each user record of an aggregate is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.aggregation.unpacking import Unpacker, has_candidates
from kinesis_spout.reading.user_records import (
    begins_within,
    number_at,
    numbers_of,
    refuse_aggregates,
    unpacked,
)
from kinesis_spout.service.shard_info import HashRange
from spark_job.settings import FAIL, UNPACK
from state.plan import UserRecords
from state.position import TRIM_HORIZON

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.reading.page import Page
    from spark_job.settings import SourceSettings
    from state.plan import Plan, ShardSlice, TaskPlan
    from state.position import Position


ARROW_SCHEMA = pa.schema(
    [
        ("streamName", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("partitionKey", pa.string()),
        ("data", pa.binary()),
        ("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
        ("attempt", pa.int32()),
        ("messageId", pa.string()),
    ]
)
COLUMNS = tuple(ARROW_SCHEMA.names)
FIRST_ATTEMPT = 1
_PAGE = 10_000  # records, at most


def _constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """The value `count` times. Not by `pa.repeat` or `pa.scalar`, which import pandas: that costs a
    process half a second of CPU.
    """
    if isinstance(value, int):
        filled = np.full(count, value, f"i{kind.bit_width // 8}")
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(filled)])
    text = value.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
    return pa.Array.from_buffers(
        kind, count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)]
    )


_kept_constant = lru_cache(maxsize=16)(_constant)  # all pages have the same columns
_FIRST_TEXT, _SEPARATOR = (_constant(text, pa.string(), 1)[0] for text in (str(FIRST_ATTEMPT), ":"))


def mode_of(plan: Plan | TaskPlan, settings: SourceSettings) -> str:
    """What is done with aggregates in a plan: what option `aggregatedRecords` was when it was made,
    so that a replay has the same rows. A plan that refused them has handed none over, and one of an
    earlier version does not say, so the option decides.
    """
    mode = plan.aggregated_records
    return settings.aggregated_records if mode in (None, FAIL) else mode


def hash_range_of(shard: ShardSlice) -> HashRange | None:
    """The hash keys of the shard's own user records, as the plan says; None: all are its own."""
    return None if shard.hash_keys is None else HashRange(*map(int, shard.hash_keys))


class ShardRows:
    """Rows of one shard, for one thread.

    - `aggregated_records`: as the option. Where it is `fail`, the methods raise
      `AggregatedRecordError` for the first aggregate; only `unpack` changes the records here.
    - `hash_range`: of the shard; None: no user record is left out.
    - `columns`: of `ARROW_SCHEMA`, those that are wanted, in their order. The others are not made.
    - `id_prefix`: stands before the shard id in message ids (`SourceSettings.id_prefix`).
    - `start`: where the shard is read from. Of an aggregate that it lies in, a spout has delivered
      the user records before it.
    """

    def __init__(
        self,
        shard_id: str,
        *,
        stream: str,
        aggregated_records: str,
        hash_range: HashRange | None,
        columns: Sequence[str],
        start: Position = TRIM_HORIZON,
        id_prefix: str = "",
    ) -> None:
        self._same = {
            "streamName": stream,
            "shardId": shard_id,
            "subSequenceNumber": 0,
            "attempt": FIRST_ATTEMPT,
        }
        self._id_prefix = _constant(id_prefix + shard_id, pa.string(), 1)[0]
        self._columns = columns
        self._schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
        self._unpacks = aggregated_records == UNPACK
        self._refuses = aggregated_records == FAIL
        self._shard_id = shard_id
        self._unpacker = Unpacker(lambda: hash_range, f"shard {shard_id} of stream {stream}")
        self._start = start
        self._kept: dict[tuple[object, ...], list[pa.RecordBatch]] = {}

    def of(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of `records`, which have the decoder's columns (`PAGE_SCHEMA`),
        in their order.
        """
        for part in self._unpacked(records):
            yield self.of_unpacked(part)

    def of_unpacked(
        self, records: pa.RecordBatch, attempts: pa.Array | None = None
    ) -> pa.RecordBatch:
        """The rows of records that were unpacked where they had to be. `attempts` (int32) are the
        delivery counts of retries; None means first deliveries.
        """
        return pa.RecordBatch.from_arrays(
            [self._column(name, records, attempts) for name in self._columns],
            schema=self._schema,
        )

    def _column(self, name: str, records: pa.RecordBatch, attempts: pa.Array | None) -> pa.Array:
        if name in records.schema.names:
            return records.column(name)
        if name == "messageId":
            attempt = _FIRST_TEXT if attempts is None else attempts.cast(pa.string())
            return pc.binary_join_element_wise(
                self._id_prefix, numbers_of(records), attempt, _SEPARATOR
            )
        if name == "attempt" and attempts is not None:
            return attempts
        kind, count = ARROW_SCHEMA.field(name).type, records.num_rows
        size = -(-count // _PAGE) * _PAGE
        return _kept_constant(self._same[name], kind, size).slice(0, count)

    def users(self, page: Page) -> UserRecords | None:
        """The records that `of_page` will hand over; None where they are those of the page. What
        was unpacked is kept until then.
        """
        if page.first is None or not self._must_unpack(page.records):
            return None
        key = page.first, page.last
        parts = self._kept.get(key)
        if parts is None:
            parts = self._kept[key] = list(self._unpacked(page.records))
        if not parts:
            return UserRecords(count=0)
        return UserRecords(
            count=sum(part.num_rows for part in parts),
            first=number_at(parts[0], 0),
            last=number_at(parts[-1], parts[-1].num_rows - 1),
        )

    def of_page(self, page: Page) -> Iterator[pa.RecordBatch]:
        """As `of`. Uses what `users` has kept of this page."""
        kept = self._kept.pop((page.first, page.last), None)
        if kept is not None:
            yield from map(self.of_unpacked, kept)
            return
        self._kept.clear()  # of pages that another attempt has cut otherwise
        yield from self.of(page.records)

    def _must_unpack(self, records: pa.RecordBatch) -> bool:
        if not has_candidates(records):
            return False
        if self._refuses:
            refuse_aggregates(records, self._shard_id)
        return self._unpacks or begins_within(number_at(records, 0), self._start)

    def _unpacked(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if records.num_rows and self._must_unpack(records):
            return unpacked(records, self._unpacker, self._start, only_begun=not self._unpacks)
        return iter((records,))
