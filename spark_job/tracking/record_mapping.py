"""`map_records` on the executors: calls the user's function for each record.

What the function returns becomes rows, and what it raises becomes notes of failed records. An
output that does not fit the schema fails its own record, never the batch.

All rows of a shard are in one partition, in the order of their sequence numbers. So with
on_failure=block_key or block_shard this code knows which records a failed one blocks, and does not
call the function for them. Besides the call, a record costs one object and one append.

Two kinds of notes are rows beside the output, in the column `NOTE`, which is NULL in a row of
output. A failure note stands for one failed record, and holds the record itself. A summary counts
the rows of one stretch of a shard. They are persisted together with the output, so that all of them
come from one evaluation.

The column is a list of one note. As a struct it would have the bytes of all its fields in each row
of output too, where it is NULL: a hundred, which Python writes and Spark reads. A list has four.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from kinesis_spout.errors import ConfigError, malformed_reason, text_of
from scheme.arrow_values import is_changed
from scheme.errors import MalformedRecordError
from scheme.record import Record
from spark_job.rows import ARROW_SCHEMA, COLUMNS
from spark_job.tracking.content_check import BatchContentError, ShardContent, foreign_id
from spark_job.tracking.outcomes import (
    FailedRecord,
    Outcome,
    Reject,
    Retry,
    delay_of,
    one_line,
    order_key,
    reason_of,
)
from spark_job.tracking.withholding import BEFORE_ALL, BatchRules, ShardRules
from state.report import OnFailure
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_job.tracking.withholding import Number

RUN_BYTES = 8
NOTE = "_ks_note"
SUMMARY = 0
"""The `outcome` of a summary. That of a failure note is the record's `Outcome`."""
ORIGINAL = pa.schema([ARROW_SCHEMA.field(name) for name in COLUMNS if name != "attempt"])
"""The record's columns in a failure note, for its dead letter."""
_OWN = pa.schema(
    [
        ("run", pa.string()),
        ("outcome", pa.int32()),
        ("reason", pa.string()),
        ("afterS", pa.float64()),
        ("key", pa.string()),
        ("ordinal", pa.int64()),
        ("newCount", pa.int64()),
        ("newFirst", pa.string()),
        ("newLast", pa.string()),
        ("retryRows", pa.int64()),
    ]
)
COLLECTED = (*_OWN.names, "messageId", "shardId")
NOTE_TYPE = pa.list_(pa.field("element", pa.struct([*_OWN, *ORIGINAL])))
NOTE_SQL = f"{NOTE}[0]"
"""The note of a row that has one, in Spark's SQL."""
_NO_RULES = ShardRules()
NOT_IN_ORDER = (
    "on_failure=block_key and block_shard need the rows of each shard together and in the order "
    "of their sequence numbers; pass the frame of read_stream(...) to foreachBatch without a "
    "repartition or sort"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMapper:
    """A function for `mapInArrow` over the source's columns.

    Its output has the columns of `columns`, and the column of notes.
    """

    function: Callable[[Record], object]
    columns: OutputColumns
    rules: BatchRules

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
        .cast(ARROW_SCHEMA.field("approximateArrivalTimestamp").type)
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

    records: Sequence[Record]
    rows: list[dict[str, Any]] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    failures: dict[int, FailedRecord] = field(default_factory=dict)

    def take(self, rows: Sequence[dict[str, Any]], owner: int) -> None:
        self.rows.extend(rows)
        self.owners.extend([owner] * len(rows))


@dataclass(slots=True)
class _Partition:
    """One evaluation of one partition. `run` is its random id.

    - `rows_before`: how many rows of each shard there were, which gives their ordinals.
    - `waiting`: by shard, the hashed keys of records that failed and block others; "" stands for
      the whole shard.
    - `latest`: by shard, the number of the last row, to check the order.
    """

    mapper: RecordMapper
    run: str
    rows_before: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, set[str]] = field(default_factory=dict)
    latest: dict[str, Number] = field(default_factory=dict)

    def map(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        several = self.mapper.rules.several
        records = records_of(batch, several=several)
        if (message_id := batch.column("messageId")[0].as_py()) != records[0].message_id:
            raise foreign_id(message_id)  # its dead letter would not be found
        shards = batch.column("shardId")
        if several:
            # Of the type that the session uses (`spark.sql.execution.arrow.useLargeVarTypes`).
            slash = pa.scalar("/", shards.type)
            shards = pc.binary_join_element_wise(batch.column("streamName"), shards, slash)
        calls = _Calls(records)
        notes: list[dict[str, object]] = []
        ordinals: list[int] = []
        for start, stop in _stretches(shards):
            shard_id = shards[start].as_py()
            rules = self.mapper.rules.of_shards.get(shard_id, _NO_RULES)
            first = self.rows_before[shard_id]
            self.rows_before[shard_id] = first + stop - start
            ordinals.extend(range(first, first + stop - start))
            if rules.withholds or self.mapper.rules.in_order:
                self._call_in_order(calls, start, stop, shard_id, rules)
            else:
                self._call(calls, start, stop)
            notes.append(self._summary(shard_id, records[start:stop], rules))
        arrays, bad = self.mapper.columns.build(calls.rows, calls.owners)
        calls.failures |= {
            owner: FailedRecord.of(records[owner].message_id, Outcome.RETRY, reason=reason)
            for owner, reason in bad.items()
        }
        if calls.failures:
            notes += self._failures(batch, calls.failures, ordinals)
        yield from self._output(arrays, notes)

    def _call(self, calls: _Calls, start: int, stop: int) -> None:
        function = self.mapper.function
        outputs: list[object] = []
        for record in calls.records[start:stop]:
            try:
                outputs.append(function(record))
            except KeyboardInterrupt:
                raise
            except BaseException as exc:  # noqa: BLE001  # whatever a user's function raises is its record's failure
                calls.failures[start + len(outputs)] = failure_of(record, exc)
                outputs.append(None)
        if set(map(type, outputs)) == {dict}:  # the usual case: one row per record
            calls.rows.extend(outputs)  # type: ignore[arg-type]  # the line above has checked it
            calls.owners.extend(range(start, stop))
            return
        for index, output in enumerate(outputs, start):
            try:
                calls.take(self.mapper.columns.rows(output), index)
            except KeyboardInterrupt:
                raise
            except BaseException as exc:  # noqa: BLE001  # an iterator's errors are its record's, too
                calls.failures[index] = failure_of(calls.records[index], exc)

    def _call_in_order(
        self, calls: _Calls, start: int, stop: int, shard_id: str, rules: ShardRules
    ) -> None:
        """Call the function where a row may be withheld.

        The output of a record is checked before the next call, since a wrong output blocks the
        records after it.
        """
        of_batch, columns = self.mapper.rules, self.mapper.columns
        for index, record in enumerate(calls.records[start:stop], start):
            number = int(record.sequence_number), record.sub_sequence_number
            key = (
                order_key(record.partition_key, shard_id, number)
                if of_batch.on_failure is OnFailure.BLOCK_KEY
                else None
            )
            outcome = rules.outcome(number, key)
            if of_batch.in_order and number <= self.latest.get(shard_id, BEFORE_ALL):
                raise BatchContentError(NOT_IN_ORDER)
            self.latest[shard_id] = number
            waiting = self.waiting.setdefault(shard_id, set())
            if outcome is None and (key or "") in waiting:
                outcome = Outcome.BLOCKED
            if outcome is not None:
                calls.failures[index] = FailedRecord.of(record.message_id, outcome, key=key)
                continue
            try:
                rows = columns.rows(self.mapper.function(record))
                columns.check(rows)
                calls.take(rows, index)
            except KeyboardInterrupt:
                raise
            except BaseException as exc:  # noqa: BLE001  # whatever a user's function raises is its record's failure
                failure = calls.failures[index] = failure_of(record, exc, key)
                if failure.outcome is Outcome.RETRY and of_batch.in_order:
                    waiting.add(key or "")

    def _summary(
        self, shard_id: str, rows: Sequence[Record], rules: ShardRules
    ) -> dict[str, object]:
        retries = 0
        # A shard's retries come before its new records.
        if rules.last_retry is not None:
            retries = sum(
                (int(row.sequence_number), row.sub_sequence_number) <= rules.last_retry
                for row in rows
            )
        new = rows[retries:]
        return {
            "run": self.run,
            "outcome": SUMMARY,
            "shardId": shard_id,
            "newCount": len(new),
            "newFirst": _number(new[0]) if new else None,
            "newLast": _number(new[-1]) if new else None,
            "retryRows": retries,
        }

    def _failures(
        self,
        batch: pa.RecordBatch,
        failures: Mapping[int, FailedRecord],
        ordinals: Sequence[int],
    ) -> Iterator[dict[str, object]]:
        """A note for each failure, in the order of the rows. `failures` and `ordinals` are by the
        indexes of the rows.
        """
        indexes = sorted(failures)
        rows = batch.take(pa.array(indexes, pa.int64())).select(ORIGINAL.names).to_pylist()
        for index, row in zip(indexes, rows, strict=True):
            failed = failures[index]
            yield row | {
                "run": self.run,
                "outcome": int(failed.outcome),
                "reason": failed.reason and text_of(failed.reason),
                "afterS": failed.after_s,
                "key": failed.key,
                "ordinal": ordinals[index],
            }

    def _output(
        self, arrays: Sequence[pa.Array], notes: Sequence[dict[str, object]]
    ) -> Iterator[pa.RecordBatch]:
        columns = self.mapper.columns.columns
        names = [*(column.name for column in columns), NOTE]
        if count := len(arrays[0]):
            # Not pa.nulls: it gives the empty fields buffers for all rows.
            no_notes = pa.array([None] * count, NOTE_TYPE)
            yield pa.RecordBatch.from_arrays([*arrays, no_notes], names=names)
        empty = [pa.nulls(len(notes), column.type) for column in columns]
        noted = pa.array([[note] for note in notes], NOTE_TYPE)
        yield pa.RecordBatch.from_arrays([*empty, noted], names=names)


def failure_of(record: Record, exc: BaseException, key: str | None = None) -> FailedRecord:
    """The failure that an exception of the user's function means for its record."""
    if isinstance(exc, MalformedRecordError):
        reason = one_line(malformed_reason(exc))
    elif isinstance(exc, WrongOutputError):
        reason = one_line(exc)
    else:
        reason = reason_of(exc)
    rejects = isinstance(exc, Reject | MalformedRecordError)
    return FailedRecord.of(
        record.message_id,
        Outcome.REJECT if rejects else Outcome.RETRY,
        reason=reason,
        after_s=delay_of(exc) if isinstance(exc, Retry) else None,
        key=key,
    )


def _stretches(shards: pa.Array) -> list[tuple[int, int]]:
    """The stretches of consecutive rows of one shard, as start (included) and stop (not)."""
    count = len(shards)
    changes = pc.indices_nonzero(
        pc.not_equal(shards.slice(1), shards.slice(0, count - 1))
    ).to_pylist()
    starts = [0, *(change + 1 for change in changes)]
    return list(zip(starts, [*starts[1:], count], strict=True))


def _number(record: Record) -> str:
    return str(SequenceNumber(int(record.sequence_number), record.sub_sequence_number))


# what the function returned
_ACCEPTED = "a dict, Row, tuple or dataclass with the schema's columns, a list of these, or None"


class WrongOutputError(Exception):
    """An output does not fit the schema.

    The text becomes the record's reason. It holds no value, since values may be secret.
    """


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the user's schema. `ddl` is its type in Spark's words, for messages."""

    name: str
    type: pa.DataType
    ddl: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """The schema of a function's rows. It is made on the driver and used on the executors."""

    columns: tuple[OutputColumn, ...]

    def __post_init__(self) -> None:
        names = [column.name.lower() for column in self.columns]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if not names or doubled is not None:
            has = "no column" if doubled is None else f"column {doubled} twice"
            raise ConfigError(
                f"the schema passed to batch.map_records has {has}",
                "declare at least one column in the schema"
                if doubled is None
                else "declare the column only once in the schema",
            )

    def rows(self, output: object) -> list[dict[str, Any]]:
        """The output of one call as rows.

        Raises `WrongOutputError`, or what the user's iterator raises.
        """
        if output is None:
            return []
        row = self._row(output)
        if row is not None:
            return [row]
        # Any other iterable iterates over its own fields, as a model of Pydantic does: each name
        # with its value would be a row of two columns.
        if isinstance(output, str | bytes | bytearray) or not isinstance(
            output, Iterator | Collection
        ):
            raise WrongOutputError(
                f"the function returned {kind_of(output)}; it may return {_ACCEPTED}"
            )
        rows = []
        for item in output:
            row = self._row(item)
            if row is None:
                raise WrongOutputError(
                    f"the function returned {kind_of(item)} among its rows; it may return "
                    f"{_ACCEPTED}"
                )
            rows.append(row)
        return rows

    def _row(self, item: object) -> dict[str, Any] | None:
        if type(item) is dict:
            return item
        if isinstance(item, Row) and hasattr(item, "__fields__"):
            return item.asDict()
        if isinstance(item, tuple):
            if len(item) != len(self.columns):
                raise WrongOutputError(
                    f"the function returned a tuple of {len(item)}; the schema has "
                    f"{len(self.columns)} columns"
                )
            return {column.name: value for column, value in zip(self.columns, item, strict=True)}
        if isinstance(item, Mapping):
            return dict(item)
        if is_dataclass(item) and not isinstance(item, type):
            return {field.name: getattr(item, field.name) for field in fields(item)}
        return None

    def check(self, rows: Sequence[dict[str, Any]]) -> None:
        """Raise `WrongOutputError` unless all rows fit the schema."""
        _, bad = self.build(rows, [0] * len(rows))
        if bad:
            raise WrongOutputError(bad[0])

    def build(
        self, rows: Sequence[dict[str, Any]], owners: Sequence[int]
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """The rows as columns, and the reasons, by owner, why its rows are left out.

        `owners[i]` is the record that row i came from. One wrong row leaves out all rows of its
        owner.
        """
        arrays = self._arrays(rows)
        if arrays is not None:
            return arrays, {}
        owned = list(zip(rows, owners, strict=True))
        names = [column.name for column in self.columns]
        bad = {owner: _names_mismatch(row, names) for row, owner in owned if row.keys() != {*names}}
        owned = [(row, owner) for row, owner in owned if owner not in bad]
        for column in self.columns:
            if _array(column, [row[column.name] for row, _ in owned]) is None:
                bad |= {
                    owner: _mismatch(column, row[column.name])
                    for row, owner in owned
                    if _array(column, [row[column.name]]) is None and owner not in bad
                }
        fitting = [row for row, owner in owned if owner not in bad]
        return [_all(column, [row[column.name] for row in fitting]) for column in self.columns], bad

    def _arrays(self, rows: Sequence[dict[str, Any]]) -> list[pa.Array] | None:
        """The columns if all rows fit the schema, else None.

        This is the usual case, so it runs no Python code per value except the look-up.
        """
        if any(length != len(self.columns) for length in set(map(len, rows))):
            return None
        arrays = []
        for column in self.columns:
            name = column.name
            try:
                array = _array(column, [row[name] for row in rows])
            except KeyError:
                return None
            if array is None:
                return None
            arrays.append(array)
        return arrays


def _array(column: OutputColumn, values: list[Any]) -> pa.Array | None:
    """The values as a column, or None if one of them does not fit."""
    try:
        array = pa.array(values, column.type)
        if is_changed(values, column.type):
            return None
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # a value's own conversion may raise anything
        return None
    return None if column.required and array.null_count else array


def _all(column: OutputColumn, values: list[Any]) -> pa.Array:
    """The values, each of which fits, as a column."""
    together = _array(column, values)
    if together is not None:
        return together
    # Arrow takes structs in the form of the first of them only: all dicts, or all tuples.
    return pa.concat_arrays([pa.array([value], column.type) for value in values])


def _names_mismatch(row: Mapping[str, Any], names: Sequence[str]) -> str:
    missing = next((name for name in names if name not in row), None)
    if missing is not None:
        return f"the function's output has no column {missing}; return None for a missing value"
    unknown = next(name for name in row if name not in names)
    return f"the function's output has a column {text_of(unknown, 60)} that its schema lacks"


def _mismatch(column: OutputColumn, value: object) -> str:
    if value is None:
        return (
            f"column {column.name} of the function's output is None, but the schema declares the "
            "column NOT NULL"
        )
    return (
        f"column {column.name} of the function's output is {kind_of(value)} that does not fit "
        f"{column.ddl}"
    )


def kind_of(value: object) -> str:
    """The value's class with its article, for messages: `an int`."""
    name = type(value).__name__
    return f"{'an' if name[:1] in {*'aeio'} else 'a'} {name}"


# the notes
def failed_record(row: Mapping[str, Any]) -> FailedRecord:
    """A collected failure note as a failed record."""
    return FailedRecord.of(
        row["messageId"],
        Outcome(row["outcome"]),
        reason=row["reason"],
        after_s=row["afterS"],
        key=row["key"],
        ordinal=row["ordinal"],
    )


def summarized(row: Mapping[str, Any]) -> ShardContent:
    """A collected summary as the content of a shard."""
    return ShardContent(
        shard_id=row["shardId"],
        new_count=row["newCount"],
        first=SequenceNumber.parse(row["newFirst"]) if row["newFirst"] else None,
        last=SequenceNumber.parse(row["newLast"]) if row["newLast"] else None,
        retry_rows=row["retryRows"],
    )
