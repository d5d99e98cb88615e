"""The user's function is called for each row of an Arrow batch.

Its outputs become rows, its exceptions become failures, and rows that a failure blocks are not
tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from kinesis_spout.errors import ConfigError
from scheme.errors import MalformedRecordError
from spark_job.rows import ARROW_SCHEMA
from spark_job.tracking.content_check import BatchContentError
from spark_job.tracking.outcomes import (
    MAX_REASON_CHARS,
    Outcome,
    Reject,
    Retry,
    order_key,
)
from spark_job.tracking.record_mapping import (
    NOTE,
    SUMMARY,
    OutputColumn,
    OutputColumns,
    RecordMapper,
)
from spark_job.tracking.withholding import ShardRules
from state.report import OnFailure
from tests.support.outcomes.odd_errors import ODD_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scheme.record import Record


ARRIVAL = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
COLUMNS = OutputColumns(
    (
        OutputColumn("id", pa.string(), "string", required=True),
        OutputColumn("total", pa.float64(), "double"),
    )
)


def rows(
    *numbers: int, shard: str = "s", key: Callable[[int], str | None] = str, attempt: int = 1
) -> pa.RecordBatch:
    entries = [
        {
            "streamName": "orders",
            "shardId": shard,
            "sequenceNumber": str(n),
            "subSequenceNumber": 0,
            "partitionKey": key(n),
            "data": b"payload %d" % n,
            "approximateArrivalTimestamp": ARRIVAL,
            "attempt": attempt,
            "messageId": f"{shard}:{n}:{attempt}",
        }
        for n in numbers
    ]
    return pa.RecordBatch.from_pylist(entries, schema=ARROW_SCHEMA)


@dataclass
class Mapped:
    output: list[dict[str, Any]]
    notes: list[dict[str, Any]]
    summaries: list[dict[str, Any]]

    def failed(self) -> dict[int, tuple[Outcome, str | None]]:
        return {
            int(note["sequenceNumber"]): (Outcome(note["outcome"]), note["reason"])
            for note in self.notes
        }


def mapped(
    function: Callable[[Record], object],
    *batches: pa.RecordBatch,
    rules: dict[str, ShardRules] | None = None,
    on_failure: OnFailure = OnFailure.CONTINUE,
) -> Mapped:
    mapper = RecordMapper(
        function=function, columns=COLUMNS, rules=rules or {}, on_failure=on_failure
    )
    found = [row for batch in mapper(iter(batches)) for row in batch.to_pylist()]
    notes = [note for row in found if row[NOTE] is not None for note in row[NOTE]]
    output = [{"id": row["id"], "total": row["total"]} for row in found if row[NOTE] is None]
    return Mapped(
        output,
        [n for n in notes if n["outcome"] != SUMMARY],
        [n for n in notes if n["outcome"] == SUMMARY],
    )


def number(record: Record) -> int:
    return int(record.sequence_number)


def one_row(record: Record) -> dict[str, Any]:
    return {"id": record.message_id, "total": 1.0}


def fails_alone(found: Mapped, outcome: Outcome, *, blocks: bool = False) -> str:
    """Of records 1, 2 and 3 the second fails, and holds back the third where it blocks. Returns the
    reason.
    """
    noted, reason = found.failed()[2]
    assert noted is outcome
    assert [row["id"] for row in found.output] == (["s:1:1"] if blocks else ["s:1:1", "s:3:1"])
    assert reason is not None
    return reason


def test_a_function_gets_all_fields_of_a_row() -> None:
    seen: list[Record] = []
    mapped(seen.append, rows(7, attempt=2))
    (one,) = seen
    assert (one.stream_name, one.shard_id, one.sequence_number) == ("orders", "s", "7")
    assert (one.partition_key, one.data, one.attempt) == ("7", b"payload 7", 2)
    assert one.approximate_arrival_ms == int(ARRIVAL.timestamp() * 1000)


@dataclass
class Order:
    id: str
    total: float | None


@pytest.mark.parametrize(
    ("output", "count"),
    [
        ({"id": "a", "total": 1}, 1),
        (("a", 1.0), 1),
        (Row(id="a", total=1.0), 1),
        (Order("a", 1.0), 1),
        ([{"id": "a", "total": 1.0}, ("a", 1.0)], 2),
        (iter([Order("a", 1.0)]), 1),
        ([], 0),
        (None, 0),
    ],
)
def test_a_function_may_return_one_row_or_several_or_none(output: object, count: int) -> None:
    found = mapped(lambda _: output, rows(1))
    assert found.output == [{"id": "a", "total": 1.0}] * count
    assert found.notes == []


class Unfit:
    """A value whose conversion raises."""

    def __float__(self) -> float:
        raise SystemExit(1)

    __index__ = __str__ = __len__ = __iter__ = __float__  # type: ignore[assignment]  # so do they


class OwnRetry(Retry):
    """What a library may make of it: it does not call the class above it."""

    def __init__(self) -> None:
        Exception.__init__(self, "bare")


WRONG_OUTPUTS: tuple[tuple[object, str], ...] = (
    ({"id": "a"}, "the function's output has no column total"),
    ({"id": "a", "total": 1.0, "more": 1}, "has a column more that its schema lacks"),
    ({"id": "a", "total": "secret"}, "is a str that does not fit double"),
    ({"id": None, "total": 1.0}, "is None, and the schema says NOT NULL"),
    (("a",), "a tuple of 1; the schema has 2 columns"),
    ("secret", "the function returned a str; it may return a dict"),
    ([{"id": "a", "total": 1.0}, 5], "the function returned an int among its rows"),
    ({"id": "half \ud83d", "total": 1.0}, ""),
    ({"id": Unfit(), "total": 1.0}, ""),
    ({"id": "a", "total": 10**400}, ""),
    ({"id": "a", "total": 1.0, "half \ud83d": 1}, ""),
)
ERRORS: tuple[tuple[BaseException, str], ...] = (
    *((error, "") for error in ODD_ERRORS),
    (Reject("negative total"), "negative total"),
    (Reject(404), "404"),
    (MalformedRecordError("half \ud83d", message_id="s:2:1"), "half"),
    (Retry("a\0b"), ""),
    (Retry("x" * 5_000_000), "xxx"),
    (OwnRetry(), ""),
    (KeyError("key"), "KeyError: 'key'"),
)


@pytest.mark.parametrize("way", ["call", "iterator"])
@pytest.mark.parametrize(
    ("does", "reason"), [*WRONG_OUTPUTS, *ERRORS], ids=lambda one: type(one).__name__
)
def test_a_wrong_output_or_any_exception_fails_its_record_alone(
    does: object, reason: str, way: str
) -> None:
    """Also an exception that an iterator raises half-way. The reason holds no value."""

    def rest(record: Record) -> Iterator[object]:
        yield one_row(record)
        if isinstance(does, BaseException):
            raise does
        yield from does if isinstance(does, list) else [does]

    def function(record: Record) -> object:
        if number(record) != 2:
            return one_row(record)
        if way == "iterator":
            return rest(record)
        if isinstance(does, BaseException):
            raise does
        return does

    is_rejected = isinstance(does, Reject | MalformedRecordError)
    outcome = Outcome.REJECT if is_rejected else Outcome.RETRY
    noted = fails_alone(mapped(function, rows(1, 2, 3)), outcome)
    assert way == "iterator" or reason in noted
    assert len(noted) <= MAX_REASON_CHARS
    assert "\0" not in noted
    assert "secret" not in noted


@pytest.mark.parametrize("after_s", [60, "60", float("nan"), -1, object()])
def test_a_retry_may_name_its_time_and_a_wrong_one_is_left_out(after_s: Any) -> None:
    def function(_: Record) -> object:
        error = Retry("later")
        error.after_s = after_s
        raise error

    (note,) = mapped(function, rows(1)).notes
    assert note["afterS"] == (60.0 if after_s in (60, "60") else None)


def test_block_shard_holds_back_what_comes_after_a_retry_and_not_after_a_rejection() -> None:
    for error, outcome in ((Reject("bad"), Outcome.REJECT), (Retry("later"), Outcome.RETRY)):

        def function(record: Record, error: Exception = error) -> object:
            if number(record) == 2:
                raise error
            return one_row(record)

        found = mapped(function, rows(1, 2, 3), on_failure=OnFailure.BLOCK_SHARD)
        fails_alone(found, outcome, blocks=outcome is Outcome.RETRY)


def test_exhausted_rows_are_not_tried_and_a_note_holds_the_record_and_its_ordinal() -> None:
    rules = {"s": ShardRules(last_retry=(2, 0), exhausted=(((2, 0), (2, 0)),))}
    found = mapped(one_row, rows(1), rows(2, 3), rules=rules)
    assert [row["id"] for row in found.output] == ["s:1:1", "s:3:1"]
    (note,) = found.notes
    assert (note["outcome"], note["messageId"], note["ordinal"]) == (Outcome.EXHAUSTED, "s:2:1", 1)
    assert (note["partitionKey"], note["data"]) == ("2", b"payload 2")
    assert note["approximateArrivalTimestamp"] == ARRIVAL


def test_an_interrupt_is_no_outcome_of_a_record() -> None:
    def function(_: Record) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mapped(function, rows(1))


def test_summaries_count_new_rows_and_retries_of_each_shard() -> None:
    rules = {"s": ShardRules(last_retry=(20, 0))}
    both = pa.Table.from_batches([rows(9, 20, 100, 101), rows(7, 8, shard="t")])
    (mixed,) = both.combine_chunks().to_batches()
    found = mapped(one_row, mixed, rows(9, shard="t"), rules=rules)
    counted = [
        (s["shardId"], s["newCount"], s["newFirst"], s["newLast"], s["retryRows"])
        for s in found.summaries
    ]
    assert counted == [("s", 2, "100", "101", 2), ("t", 2, "7", "8", 0), ("t", 1, "9", "9", 0)]
    (run,) = {summary["run"] for summary in found.summaries}
    assert mapped(one_row, mixed).summaries[0]["run"] != run  # another evaluation


def test_later_rows_of_a_failed_key_are_not_tried() -> None:
    """Also in later Arrow batches. Other keys, and the same key in another shard, go on."""
    called: list[str] = []

    def function(record: Record) -> object:
        called.append(record.message_id)
        return 1 / 0 if number(record) == 2 else one_row(record)

    parity = lambda n: f"key {n % 2}"  # noqa: E731  # shorter than a function here
    found = mapped(
        function,
        rows(1, 2, 3, 4, key=parity),
        rows(6, key=parity),
        rows(2, 4, shard="t", key=parity),
        on_failure=OnFailure.BLOCK_KEY,
    )
    assert called == ["s:1:1", "s:2:1", "s:3:1", "t:2:1"]
    blocked = [note["messageId"] for note in found.notes if note["outcome"] == Outcome.BLOCKED]
    assert blocked == ["s:4:1", "s:6:1", "t:4:1"]
    assert {note["key"] for note in found.notes} == {order_key("key 0", "s", (2, 0))}


def test_block_key_a_record_without_a_partition_key_blocks_no_other_record() -> None:
    """As in a stream with record distribution AUTO."""
    found = mapped(
        lambda record: 1 / 0 if number(record) == 2 else one_row(record),
        rows(1, 2, 3, key=lambda _: None),
        on_failure=OnFailure.BLOCK_KEY,
    )
    fails_alone(found, Outcome.RETRY)
    (note,) = found.notes
    assert (note["partitionKey"], note["key"]) == (None, order_key(None, "s", (2, 0)))
    assert len({order_key(None, "s", (number, 0)) for number in (1, 2, 3)}) == 3


def test_rows_out_of_order_are_refused_with_block_key() -> None:
    with pytest.raises(BatchContentError, match="repartition"):
        mapped(one_row, rows(2, 1), on_failure=OnFailure.BLOCK_KEY)
    assert len(mapped(one_row, rows(2, 1)).output) == 2


@pytest.mark.parametrize("names", [[], ["id", "ID"]])
def test_a_schema_without_columns_or_with_a_column_twice_is_refused(names: Sequence[str]) -> None:
    with pytest.raises(ConfigError, match=r"schema given to batch\.map_records"):
        OutputColumns(tuple(OutputColumn(name, pa.string(), "string") for name in names))
