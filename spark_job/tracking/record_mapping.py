"""`map_records` on the executors: calls the user's function for each record.

What the function returns becomes rows, and what it raises becomes failure notes (`record_note`).

All rows of a shard are in one partition, in the order of their sequence numbers. So with
on_failure=block_key or block_shard this code knows which records a failed one blocks, and does not
call the function for them. Besides the call, a record costs one object and one append.
"""

from __future__ import annotations

import secrets
import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.errors import malformed_reason
from scheme.errors import MalformedRecordError
from scheme.record import Record
from spark_job.tracking.content_check import BatchContentError
from spark_job.tracking.outcomes import (
    Outcome,
    Reject,
    Retry,
    delay_of,
    one_line,
    order_key,
    reason_of,
)
from spark_job.tracking.record_note import (
    NOTE,
    Failure,
    Stretch,
    failure_notes,
    no_notes,
    summary_notes,
)
from spark_job.tracking.row_output import WrongOutputError
from spark_job.tracking.withholding import BEFORE_ALL, Ordinals, ShardRules
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spark_job.tracking.row_output import OutputColumns
    from spark_job.tracking.withholding import Number

RUN_BYTES = 8
_NO_RULES = ShardRules()
_LAST = sys.maxsize
NOT_IN_ORDER = (
    "the rows of a shard are not together and in the order of their sequence numbers, which "
    "on_failure=block_key and block_shard need; give tracked(...) the frame of read_stream(...) "
    "without a repartition or sort"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMapper:
    """A function for `mapInArrow` over the source's columns.

    Its output has the columns of `columns`, and the column of notes (`record_note`).
    """

    function: Callable[[Record], object]
    columns: OutputColumns
    rules: Mapping[str, ShardRules]
    on_failure: OnFailure
    several: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        walk = _Partition(self, secrets.token_hex(RUN_BYTES))
        for batch in batches:
            if batch.num_rows:
                yield from walk.map(batch)


def records_of(batch: pa.RecordBatch, *, several: bool = False) -> list[Record]:
    """The rows of an Arrow batch that has the source's columns, as records. `several`: of several
    streams.
    """
    arrival_us = (
        batch.column("approximateArrivalTimestamp")
        .cast(pa.timestamp("us", tz="UTC"))
        .cast(pa.int64())
    )
    names = (
        "streamName",
        "shardId",
        "sequenceNumber",
        "partitionKey",
        "data",
        "subSequenceNumber",
        "attempt",
    )
    columns = [batch.column(name).to_pylist() for name in names]
    arrivals_ms = pc.divide(arrival_us, 1000).to_pylist()
    return [
        Record(
            stream_name=stream,
            shard_id=shard,
            sequence_number=sequence,
            partition_key=key,
            data=data,
            approximate_arrival_ms=arrival_ms,
            sub_sequence_number=sub,
            attempt=attempt,
            id_prefix=f"{stream}/" if several else "",
        )
        for stream, shard, sequence, key, data, sub, attempt, arrival_ms in zip(
            *columns, arrivals_ms, strict=True
        )
    ]


@dataclass(slots=True)
class _Calls:
    """The results of the calls for one Arrow batch.

    `owners[i]` is the index of the record that row i came from. `failures` are by index too.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)

    def take(self, rows: Sequence[dict[str, Any]], owner: int) -> None:
        self.rows.extend(rows)
        self.owners.extend([owner] * len(rows))


@dataclass(slots=True)
class _Partition:
    """One evaluation of one partition. `run` is its random id.

    - `waiting`: by shard, the hashed keys of records that failed and block others; "" stands for
      the whole shard.
    - `latest`: by shard, the number of the last row, to check the order.
    """

    mapper: RecordMapper
    run: str
    ordinals: Ordinals = field(default_factory=Ordinals)
    waiting: dict[str, set[str]] = field(default_factory=dict)
    latest: dict[str, Number] = field(default_factory=dict)

    def map(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        several = self.mapper.several
        records = records_of(batch, several=several)
        shards = batch.column("shardId")
        if several:
            shards = pc.binary_join_element_wise(batch.column("streamName"), shards, "/")
        calls = _Calls()
        stretches: list[Stretch] = []
        before: list[tuple[int, int]] = []
        for start, stop in _stretches(shards):
            shard_id = shards[start].as_py()
            rules = self.mapper.rules.get(shard_id, _NO_RULES)
            before.append((start, self.ordinals.take(shard_id, stop - start) - start))
            if rules.withholds or self.mapper.on_failure is not OnFailure.CONTINUE:
                self._call_in_order(shard_id, records, range(start, stop), calls, rules)
            else:
                self._call(records, start, stop, calls)
            stretches.append(_summary(shard_id, records[start:stop], rules))
        arrays, bad = self.mapper.columns.build(calls.rows, calls.owners)
        calls.failures |= {owner: Failure(Outcome.RETRY, reason) for owner, reason in bad.items()}
        notes = [summary_notes(stretches, self.run)]
        if calls.failures:
            ordinals = {
                index: index + before[bisect_right(before, (index, _LAST)) - 1][1]
                for index in calls.failures
            }
            notes.append(failure_notes(batch, calls.failures, ordinals, self.run))
        yield from self._output(arrays, notes)

    def _call(self, records: Sequence[Record], start: int, stop: int, calls: _Calls) -> None:
        function = self.mapper.function
        outputs: list[object] = []
        for record in records[start:stop]:
            try:
                outputs.append(function(record))
            except KeyboardInterrupt:
                raise
            except BaseException as exc:  # noqa: BLE001  # whatever a user's function raises is its record's failure
                calls.failures[start + len(outputs)] = failure_of(exc)
                outputs.append(None)
        if set(map(type, outputs)) == {dict}:  # the usual case: one row per record
            calls.rows.extend(outputs)  # type: ignore[arg-type]  # the line above has checked it
            calls.owners.extend(range(start, stop))
            return
        for index, output in enumerate(outputs, start):
            if output is None:
                continue
            if type(output) is dict:
                calls.rows.append(output)
                calls.owners.append(index)
                continue
            try:
                calls.take(self.mapper.columns.rows(output), index)
            except KeyboardInterrupt:
                raise
            except BaseException as exc:  # noqa: BLE001  # an iterator's errors are its record's, too
                calls.failures[index] = failure_of(exc)

    def _call_in_order(
        self,
        shard_id: str,
        records: Sequence[Record],
        indexes: range,
        calls: _Calls,
        rules: ShardRules,
    ) -> None:
        """Call the function where a row may be withheld.

        The output of a record is checked before the next call, since a wrong output blocks the
        records after it.
        """
        on_failure, columns = self.mapper.on_failure, self.mapper.columns
        for index in indexes:
            record = records[index]
            number = int(record.sequence_number), record.sub_sequence_number
            key = (
                order_key(record.partition_key, shard_id, number)
                if on_failure is OnFailure.BLOCK_KEY
                else None
            )
            outcome = rules.outcome(number, key)
            self._check_order(shard_id, number)
            waiting = self.waiting.setdefault(shard_id, set())
            if outcome is None and (key or "") in waiting:
                outcome = Outcome.BLOCKED
            if outcome is not None:
                calls.failures[index] = Failure(outcome, key=key)
                continue
            try:
                rows = columns.rows(self.mapper.function(record))
                columns.check(rows)
                calls.take(rows, index)
            except KeyboardInterrupt:
                raise
            except BaseException as exc:  # noqa: BLE001  # whatever a user's function raises is its record's failure
                failure = failure_of(exc)
                calls.failures[index] = Failure(
                    failure.outcome, failure.reason, failure.after_s, key
                )
                if failure.outcome is Outcome.RETRY and on_failure is not OnFailure.CONTINUE:
                    waiting.add(key or "")

    def _check_order(self, shard_id: str, number: Number) -> None:
        if self.mapper.on_failure is not OnFailure.CONTINUE and number <= self.latest.get(
            shard_id, BEFORE_ALL
        ):
            raise BatchContentError(NOT_IN_ORDER)
        self.latest[shard_id] = number

    def _output(
        self, arrays: Sequence[pa.Array], notes: Sequence[pa.ListArray]
    ) -> Iterator[pa.RecordBatch]:
        names = [*(column.name for column in self.mapper.columns.columns), NOTE]
        if len(arrays[0]):
            yield pa.RecordBatch.from_arrays([*arrays, no_notes(len(arrays[0]))], names=names)
        for note in notes:
            empty = [pa.nulls(len(note), column.type) for column in self.mapper.columns.columns]
            yield pa.RecordBatch.from_arrays([*empty, note], names=names)


def failure_of(exc: BaseException) -> Failure:
    """The failure that an exception of the user's function means for its record."""
    if isinstance(exc, Reject):
        return Failure(Outcome.REJECT, reason_of(exc))
    if isinstance(exc, MalformedRecordError):
        return Failure(Outcome.REJECT, one_line(malformed_reason(exc)))
    if isinstance(exc, Retry):
        return Failure(Outcome.RETRY, reason_of(exc), delay_of(exc))
    if isinstance(exc, WrongOutputError):
        return Failure(Outcome.RETRY, one_line(exc))
    return Failure(Outcome.RETRY, reason_of(exc))


def _stretches(shards: pa.Array) -> list[tuple[int, int]]:
    """The stretches of consecutive rows of one shard, as start (included) and stop (not)."""
    count = len(shards)
    changes = pc.indices_nonzero(
        pc.not_equal(shards.slice(1), shards.slice(0, count - 1))
    ).to_pylist()
    starts = [0, *(change + 1 for change in changes)]
    return list(zip(starts, [*starts[1:], count], strict=True))


def _summary(shard_id: str, rows: Sequence[Record], rules: ShardRules) -> Stretch:
    retries = 0
    # A shard's retries come before its new records.
    if rules.last_retry is not None:
        retries = sum(
            (int(row.sequence_number), row.sub_sequence_number) <= rules.last_retry for row in rows
        )
    new = rows[retries:]
    first = _text(new[0]) if new else None
    last = _text(new[-1]) if new else None
    return Stretch(
        shard_id=shard_id, new_count=len(new), new_first=first, new_last=last, retry_rows=retries
    )


def _text(record: Record) -> str:
    sub = record.sub_sequence_number
    return f"{record.sequence_number}.{sub}" if sub else record.sequence_number
