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
from scheme.record import Record
from spark_job.rows import ARROW_SCHEMA
from spark_job.tracking.content_check import BatchContentError
from spark_job.tracking.outcomes import (
    MAX_REASON_CHARS,
    Outcome,
    Reject,
    Retry,
    key_hash,
    order_key,
)
from spark_job.tracking.record_mapping import RecordMapper, records_of
from spark_job.tracking.record_note import NOTE, SUMMARY
from spark_job.tracking.row_output import OutputColumn, OutputColumns
from spark_job.tracking.withholding import ShardRules
from state.report import OnFailure
from tests.support.outcomes.odd_errors import ODD_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


VALUES: tuple[Any, ...] = ("a", 1.0)
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


def test_the_column_of_notes_adds_a_few_bytes_to_a_row_of_output() -> None:
    """Spark gets each of these bytes through a socket."""
    mapper = RecordMapper(
        function=one_row, columns=COLUMNS, rules={}, on_failure=OnFailure.CONTINUE
    )
    output = next(mapper(iter([rows(*range(1, 10_001))])))
    with_notes, without = (
        batch.serialize().size for batch in (output, output.drop_columns([NOTE]))
    )
    assert with_notes - without < 10_000 * 6


def test_a_row_becomes_a_record_with_all_of_its_fields() -> None:
    (record,) = records_of(rows(7, attempt=2))
    assert record == Record(
        stream_name="orders",
        shard_id="s",
        sequence_number="7",
        partition_key="7",
        data=b"payload 7",
        approximate_arrival_ms=int(ARRIVAL.timestamp() * 1000),
        attempt=2,
    )


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
        (Row(*VALUES), 1),
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

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __float__(self) -> float:
        raise self._error

    __index__ = __str__ = __int__ = __len__ = __iter__ = __float__  # type: ignore[assignment]  # so do they

    @property
    def __arrow_array__(self) -> Any:
        raise self._error


class OddName(str):
    """A column's name whose text cannot be made."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __format__ = __str__  # type: ignore[assignment]  # that is the point


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ({"id": "a"}, "the function's output has no column total"),
        ({"id": "a", "total": 1.0, "more": 1}, "has a column more that its schema lacks"),
        ({"id": 1, "total": 1.0}, "column id of the function's output is an int that does not fit"),
        ({"id": "a", "total": "secret"}, "is a str that does not fit double"),
        ({"id": None, "total": 1.0}, "is None, and the schema says NOT NULL"),
        (("a",), "a tuple of 1; the schema has 2 columns"),
        ("secret", "the function returned a str; it may return a dict"),
        (5, "the function returned an int"),
        ([{"id": "a", "total": 1.0}, 5], "the function returned an int among its rows"),
        ([{"id": "a", "total": 1.0}, {"id": "a"}], "has no column total"),
        ({"id": "half \ud83d", "total": 1.0}, ""),
        ({"id": "a", "total": Unfit(RuntimeError("no number"))}, ""),
        ({"id": Unfit(SystemExit(1)), "total": 1.0}, ""),
        ({"id": "a", "total": 10**400}, ""),
        ({"id": "a", "total": 1.0, OddName("more"): 1}, ""),
        ({"id": "a", "total": 1.0, "half \ud83d": 1}, ""),
        ({1: "a", 2: 1.0}, ""),
        (type("", (), {})(), ""),
        ([type("", (), {})()], ""),
    ],
    ids=lambda _: "",
)
def test_a_wrong_output_fails_its_record_with_a_reason_that_holds_no_value(
    output: object, reason: str
) -> None:
    """The other records do not fail. Only block_shard blocks the later one."""
    for on_failure in OnFailure:
        found = mapped(
            lambda record: output if number(record) == 2 else one_row(record),
            rows(1, 2, 3),
            on_failure=on_failure,
        )
        noted = fails_alone(found, Outcome.RETRY, blocks=on_failure is OnFailure.BLOCK_SHARD)
        assert reason in noted
        assert "secret" not in noted


def test_the_exception_of_a_function_is_the_outcome_of_its_record() -> None:
    def function(record: Record) -> object:
        match number(record):
            case 1:
                raise Reject("negative total")
            case 2:
                raise Retry("no rates yet", after_s=60)
            case 3:
                raise MalformedRecordError("not valid UTF-8", message_id=record.message_id)
            case 4:
                return (one_row(record) if n == 0 else {"a": 1}["key"] for n in range(2))
        return one_row(record)

    found = mapped(function, rows(1, 2, 3, 4, 5))
    assert found.failed() == {
        1: (Outcome.REJECT, "negative total"),
        2: (Outcome.RETRY, "no rates yet"),
        3: (Outcome.REJECT, "not valid UTF-8"),
        4: (Outcome.RETRY, "KeyError: 'key'"),
    }
    assert [note["afterS"] for note in found.notes] == [None, 60.0, None, None]
    assert [row["id"] for row in found.output] == ["s:5:1"]


class Bare:
    """What a library may make of our outcomes: they do not call the class above them."""

    class OwnReject(Reject):
        def __init__(self) -> None:
            Exception.__init__(self, "bare")

    class OwnRetry(Retry):
        def __init__(self) -> None:
            Exception.__init__(self, "bare")


def retry_after(after_s: Any) -> Retry:
    made = Retry("later")
    made.after_s = after_s
    return made


@pytest.mark.parametrize("on_failure", OnFailure)
@pytest.mark.parametrize("way", ["call", "iterator"])
@pytest.mark.parametrize(
    "error",
    [
        *ODD_ERRORS,
        Bare.OwnReject(),
        Bare.OwnRetry(),
        Reject("half \ud83d"),
        Reject(404),
        Retry("a\0b"),
        Retry("x" * 5_000_000),
        Retry(None),  # type: ignore[arg-type]  # a user may
        retry_after("60"),
        retry_after(float("nan")),
        retry_after(-1),
        retry_after(object()),
        MalformedRecordError("half \ud83d", message_id="s:2:1"),
        MalformedRecordError(404, message_id="s:2:1"),  # type: ignore[arg-type]  # a user may
    ],
    ids=lambda one: type(one).__name__,
)
def test_any_exception_fails_its_record_alone(
    error: BaseException, way: str, on_failure: OnFailure
) -> None:
    """Also one that an iterator raises half-way. The batch goes on."""

    def rest(record: Record) -> Iterator[object]:
        yield one_row(record)
        raise error

    def function(record: Record) -> object:
        if number(record) != 2:
            return one_row(record)
        if way == "iterator":
            return rest(record)
        raise error

    found = mapped(function, rows(1, 2, 3), on_failure=on_failure)
    is_rejected = isinstance(error, Reject | MalformedRecordError)
    reason = fails_alone(
        found,
        Outcome.REJECT if is_rejected else Outcome.RETRY,
        blocks=on_failure is OnFailure.BLOCK_SHARD and not is_rejected,
    )
    assert len(reason) <= MAX_REASON_CHARS
    assert "\0" not in reason


def test_an_interrupt_is_no_outcome_of_a_record() -> None:
    def function(_: Record) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mapped(function, rows(1))


def test_a_failure_note_holds_the_record_and_its_ordinal() -> None:
    def function(record: Record) -> object:
        return one_row(record) if number(record) != 4 else 1 / 0

    (note,) = mapped(function, rows(1, 2), rows(3, 4)).notes
    assert (note["messageId"], note["data"], note["ordinal"]) == ("s:4:1", b"payload 4", 3)
    assert (note["partitionKey"], note["approximateArrivalTimestamp"]) == ("4", ARRIVAL)


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
    assert {note["key"] for note in found.notes} == {key_hash("key 0")}


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


def test_exhausted_rows_are_not_tried() -> None:
    rules = {"s": ShardRules(last_retry=(2, 0), exhausted=(((1, 0), (1, 0)),))}
    found = mapped(one_row, rows(1, 2, 3), rules=rules)
    assert found.failed() == {1: (Outcome.EXHAUSTED, None)}
    assert [row["id"] for row in found.output] == ["s:2:1", "s:3:1"]


def test_rows_out_of_order_are_refused_with_block_key() -> None:
    with pytest.raises(BatchContentError, match="repartition"):
        mapped(one_row, rows(2, 1), on_failure=OnFailure.BLOCK_KEY)
    assert len(mapped(one_row, rows(2, 1)).output) == 2


@pytest.mark.parametrize("names", [[], ["id", "ID"]])
def test_a_schema_without_columns_or_with_a_column_twice_is_refused(names: Sequence[str]) -> None:
    with pytest.raises(ConfigError, match=r"schema given to batch\.map_records"):
        OutputColumns(tuple(OutputColumn(name, pa.string(), "string") for name in names))
