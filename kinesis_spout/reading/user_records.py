"""Aggregates of the Kinesis Producer Library (KPL) in pages and retries: refused, or unpacked, so
that each user record is a record of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.aggregation.unpacking import has_candidates
from kinesis_spout.errors import KinesisError
from kinesis_spout.service.get_records_decoder import NO_RECORDS, RecordColumns
from kinesis_spout.service.shard_info import IS_OWNED
from scheme.record import KPL_MAGIC, SUB_SEQUENCE_NUMBER, is_kpl_aggregate
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.aggregation.unpacking import Unpacker
    from state.plan import PlannedRetry
    from state.position import Position


class AggregatedRecordError(KinesisError):
    """A record is a KPL aggregate. Nothing was read past it."""


_REMEDY = (
    "set option aggregatedRecords to 'unpack' to read the user records of aggregates, or to "
    "'raw' to read their bytes"
)


def refuse_aggregates(records: pa.RecordBatch, shard_id: str, *, remedy: str = _REMEDY) -> None:
    """Raise `AggregatedRecordError` for the first KPL aggregate: it contains several user records
    and must not be returned as one. `remedy`: the end of the error's sentence.
    """
    candidates = pc.starts_with(records.column("data"), KPL_MAGIC)
    if not candidates.true_count:
        return
    for index in pc.indices_nonzero(candidates).to_pylist():
        if is_kpl_aggregate(records.column("data")[index].as_py()):
            sequence = records.column("sequenceNumber")[index]
            raise AggregatedRecordError(
                f"record {sequence} of shard {shard_id} is an aggregate of the Kinesis "
                "Producer Library",
                remedy,
            )


def numbers_of(records: pa.RecordBatch) -> pa.Array:
    """The numbers of the records as texts of `SequenceNumber`: with the sub-sequence number where
    `records` was unpacked and it is not 0.
    """
    sequences = records.column("sequenceNumber")
    if SUB_SEQUENCE_NUMBER not in records.schema.names:
        return sequences
    subs = records.column(SUB_SEQUENCE_NUMBER)
    joined = pc.binary_join_element_wise(sequences, subs.cast(pa.string()), ".")
    return pc.if_else(pc.equal(subs, 0), sequences, joined)


def number_at(records: pa.RecordBatch, row: int) -> SequenceNumber:
    """The number of one record."""
    return SequenceNumber.parse(numbers_of(records.slice(row, 1))[0].as_py())


def within(records: pa.RecordBatch, first: SequenceNumber, last: SequenceNumber) -> pa.RecordBatch:
    """Those of the records (ascending) between these numbers, both inclusive."""
    rows = range(records.num_rows)
    start = bisect_left(rows, first, key=lambda row: number_at(records, row))
    end = bisect_right(rows, last, key=lambda row: number_at(records, row))
    return records.slice(start, end - start)


def lists_of(batches: Sequence[pa.RecordBatch]) -> RecordColumns:
    """The records of unpacked batches as lists whose numbers are `numbers_of`."""
    if not batches:
        return NO_RECORDS
    numbers = [number for batch in batches for number in numbers_of(batch).to_pylist()]
    keys, data = (
        [value for batch in batches for value in batch.column(name).to_pylist()]
        for name in ("partitionKey", "data")
    )
    arrivals = [batch.column("approximateArrivalTimestamp") for batch in batches]
    return RecordColumns(numbers, keys, data, pa.concat_arrays(arrivals))


def begins_within(first: SequenceNumber | None, start: Position) -> bool:
    """Whether `start` lies within the aggregate that is the first record of a page."""
    inside = start.sequence
    return bool(first and inside and inside.sub and first.shares_record(inside))


def unpacked(
    records: pa.RecordBatch, unpacker: Unpacker, start: Position, *, only_begun: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a page, at least one, with user records in the place of aggregates.

    Where `start` lies within the first aggregate, the user records before that are left out: they
    were delivered. What was unpacked then stays so: `only_begun` unpacks that one and no other.
    """
    if begins_within(number_at(records, 0), start) and start.sequence is not None:
        sub = start.sequence.sub
        for part in map(_as_unpacked, unpacker.unpack(records.slice(0, 1))):
            rest = part.filter(pc.greater_equal(part.column(SUB_SEQUENCE_NUMBER), sub))
            if rest.num_rows:
                yield rest
        records = records.slice(1)
    if only_begun and records.num_rows:
        yield records
    elif records.num_rows:
        yield from unpacker.unpack(records)


def unpacked_retries(
    records: pa.RecordBatch,
    unpacker: Unpacker,
    retries: Sequence[PlannedRetry],
    *,
    only_subs: bool,
) -> pa.RecordBatch:
    """The records of a page that may be of `retries` (ascending), unpacked, also the user records
    that belong to other shards (column `IS_OWNED`). All of the page where none of them may be an
    aggregate.

    Of a `whole` retry, only the aggregates are unpacked of which its ends name a sub-sequence
    number. `only_subs`: of any retry without one, none is.
    """
    if not has_candidates(records):
        return records
    wanted = _wanted(records, retries, only_subs=only_subs)
    if not (only_subs or any(retry.whole for retry in retries)):  # the others are of no retry
        records = records.filter(pa.array(wanted, pa.bool_()))
        wanted = [True] * records.num_rows
    parts: list[pa.RecordBatch] = []
    end = 0
    for is_wanted, stretch in groupby(wanted):
        start, end = end, end + len(list(stretch))
        part = records.slice(start, end - start)
        unpacked_part = unpacker.unpack(part, keep_others=True) if is_wanted else [part]
        parts += map(_as_unpacked, unpacked_part)
    if not parts:  # aggregates may have no user record
        return _as_unpacked(records.slice(0, 0))
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _as_unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Plain records in the columns of unpacked ones."""
    if SUB_SEQUENCE_NUMBER in batch.schema.names:
        return batch
    rows = batch.num_rows
    for name, values in (
        (SUB_SEQUENCE_NUMBER, pa.array([0] * rows, pa.int64())),
        (IS_OWNED, pa.array([True] * rows, pa.bool_())),
    ):
        batch = batch.append_column(pa.field(name, values.type, nullable=False), values)
    return batch


def without_owned(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records without the column `IS_OWNED`, if they have it."""
    return records.drop_columns([IS_OWNED]) if IS_OWNED in records.schema.names else records


class OwnedOfRange:
    """Picks the records of a range that were delivered: not those user records that belong to
    other shards.

    A range whose first record belongs to another shard was delivered while the shard's hash keys
    were not known: nothing of it is left out. Its last record was delivered in any case.

    `left_out` counts the user records that were left out.
    """

    def __init__(self, first: SequenceNumber, last: SequenceNumber) -> None:
        self.left_out = 0
        self._first, self._last = str(first), str(last)
        self._keeps_all = False

    def of(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the next records between the range's ends, in the columns without `IS_OWNED`."""
        if IS_OWNED not in records.schema.names:
            return records
        is_owned, records = records.column(IS_OWNED), without_owned(records)
        if not is_owned.false_count:
            return records
        numbers = numbers_of(records)
        if numbers[0].as_py() == self._first and not is_owned[0].as_py():
            self._keeps_all = True
        if self._keeps_all:
            return records
        kept = records.filter(pc.or_(is_owned, pc.equal(numbers, self._last)))
        self.left_out += records.num_rows - kept.num_rows
        return kept


def _wanted(
    records: pa.RecordBatch, retries: Sequence[PlannedRetry], *, only_subs: bool
) -> list[bool]:
    """Whether each Kinesis record is to be unpacked if it is an aggregate, because it may be of a
    retry; with `only_subs`, of one that names a sub-sequence number.
    """
    numbers = [int(text) for text in records.column("sequenceNumber").to_pylist()]
    wanted = [False] * len(numbers)
    for retry in retries:
        if not numbers or retry.first.sequence > numbers[-1]:
            break
        if retry.whole:
            # Only an aggregate that a spout had delivered in part was unpacked: at the ends.
            spans = [(end.sequence, end.sequence) for end in (retry.first, retry.end) if end.sub]
        elif only_subs and not (retry.first.sub or retry.end.sub):
            spans = []
        else:
            spans = [(retry.first.sequence, retry.end.sequence)]
        for lowest, highest in spans:
            first = bisect_left(numbers, lowest)
            end = bisect_right(numbers, highest, first)
            wanted[first:end] = [True] * (end - first)
    return wanted
