"""The user's function is called for each row of an Arrow batch: its outputs become rows, its
exceptions failures. Rows are withheld by the plan, by records queued outside of it, and by those
that failed. A batch is refused unless it has exactly the rows that its plan's tasks published.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import Row

from kinesis_spout.errors import ConfigError
from scheme.errors import MalformedRecordError
from spark_job.rows import ARROW_SCHEMA
from spark_job.tracking.content_check import (
    BatchContentError,
    ShardContent,
    check_content,
    is_what_is_left,
    lowest_published,
)
from spark_job.tracking.outcomes import (
    MAX_REASON_CHARS,
    FailedRecord,
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
from spark_job.tracking.withholding import (
    BatchRules,
    ShardRules,
    WithheldRowFinder,
    failure_rules,
    plan_rules,
)
from state.plan import (
    Plan,
    PlannedRetry,
    ShardReadResult,
    ShardSlice,
    TaskPlan,
    TaskResult,
    retries_with_rows,
)
from state.position import SHARD_END, Position
from state.report import OnFailure
from state.sequence_number import SequenceNumber
from tests.support.outcomes.odd_errors import ODD_ERRORS
from tests.support.state.shard_values import retry as planned
from tests.support.state.shard_values import state, waiting, with_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scheme.record import Record
    from state.shard_state import ShardState

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
        function=function,
        columns=COLUMNS,
        rules=BatchRules(of_shards=rules or {}, on_failure=on_failure),
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


def test_records_of_several_streams_may_come_in_large_types() -> None:
    """As in a session with `spark.sql.execution.arrow.useLargeVarTypes`."""
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    several = rows(1, 2).set_column(
        rows(1).schema.get_field_index("messageId"),
        "messageId",
        pa.array(["orders/s:1:1", "orders/s:2:1"]),
    )
    schema = pa.schema([(one.name, large.get(one.type, one.type)) for one in several.schema])
    mapper = RecordMapper(function=one_row, columns=COLUMNS, rules=BatchRules(several=True))
    found = [row for batch in mapper(iter([several.cast(schema)])) for row in batch.to_pylist()]
    assert [row["id"] for row in found if row["id"]] == ["orders/s:1:1", "orders/s:2:1"]
    assert [note["shardId"] for row in found for note in row[NOTE] or ()] == ["orders/s"]


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


class Model:
    """It iterates over its fields, as a model of Pydantic."""

    def __iter__(self) -> Iterator[tuple[str, object]]:
        return iter([("id", 1.0), ("total", 2.0)])


class OwnRetry(Retry):
    """What a library may make of it: it does not call the class above it."""

    def __init__(self) -> None:
        Exception.__init__(self, "bare")


WRONG_OUTPUTS: tuple[tuple[object, str], ...] = (
    ({"id": "a"}, "the function's output has no column total"),
    ({"id": "a", "total": 1.0, "more": 1}, "has a column more that its schema lacks"),
    ({"id": "a", "total": "secret"}, "is a str that does not fit double"),
    ({"id": None, "total": 1.0}, "is None, but the schema declares the column NOT NULL"),
    (("a",), "a tuple of 1; the schema has 2 columns"),
    ("secret", "the function returned a str; it may return a dict"),
    (Model(), "the function returned a Model; it may return a dict"),
    ([{"id": "a", "total": 1.0}, 5], "the function returned an int among its rows"),
    ({"id": "half \ud83d", "total": 1.0}, ""),
    ({"id": Unfit(), "total": 1.0}, ""),
    ({"id": "a", "total": 10**400}, ""),
    ({"id": "a", "total": 1.0, "half \ud83d": 1}, ""),
)
TIME = pa.timestamp("us", tz="UTC")
PAIR = pa.struct([("a", pa.int64()), ("b", pa.list_(TIME))])


@pytest.mark.parametrize(
    ("kind", "fitting", "wrong"),
    [
        (
            pa.int32(),
            [None, 3, 4.0, np.int64(5), Decimal(6)],
            [1.5, np.float32(1.5), Decimal("1.5")],
        ),
        (
            pa.float32(),
            [None, 1.5, float("inf"), float("nan"), -3.4028234e38, 2, np.float64(0.1)],
            [1e39, -1e300, np.float64(1e300)],
        ),
        (TIME, [None, ARRIVAL, ARRIVAL.replace(tzinfo=None)], [1_767_323_045, 1.5]),
        (pa.date32(), [None, ARRIVAL.date(), datetime(2026, 1, 2, tzinfo=UTC)], [20_000, ARRIVAL]),
        (pa.duration("us"), [None, timedelta(1)], [5]),
        (
            pa.list_(pa.int64()),
            [None, [], [1, None, 2.0], (1,), np.array([1.0]), b"a"],
            [[1, 1.5], (Decimal("1.5"),), np.array([0.5])],
        ),
        (pa.list_(pa.string()), [None, ["red"]], ["red"]),
        (
            PAIR,
            [
                None,
                {"a": 1},
                {"a": None, "more": 1.5},
                (1, [ARRIVAL]),
                Row(a=1, b=None),
                [("a", 1)],
            ],
            [{"a": 1.5}, {"b": [ARRIVAL, 5]}, (1.5, None), Row(a=1.5, b=None), Row(b=None, a=1)],
        ),
        (
            pa.map_(pa.int64(), PAIR),
            [None, {}, {1: None}, {1: {"a": 1}}, [(1, (1, None))], [{"key": 1, "value": None}]],
            [{1.5: None}, {1: {"a": 1.5}}, [(1, (1.5, None))], [{"key": 1.5, "value": None}]],
        ),
    ],
)
def test_a_value_that_arrow_would_change_does_not_fit(
    kind: pa.DataType, fitting: list[object], wrong: list[object]
) -> None:
    """Arrow makes 1 of 1.5, infinity of 1e39 in a FLOAT, and of the seconds of today a time in
    January 1970.
    """
    columns = OutputColumns((OutputColumn("n", kind, "the type"),))
    (column,), bad = columns.build([{"n": value} for value in fitting], range(len(fitting)))
    assert (len(column), bad) == (len(fitting), {})
    values = [fitting[1], *wrong]
    (column,), bad = columns.build([{"n": value} for value in values], range(len(values)))
    assert (len(column), [*bad]) == (1, [*range(1, len(values))])
    assert "that does not fit the type" in bad[1]


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


def test_a_row_is_not_compared_with_every_exhausted_record_of_its_shard() -> None:
    """A plan may have thousands of these, and a batch many rows beside them."""
    comparisons = 0

    class Counted(tuple[int, int]):
        __slots__ = ()

        def __lt__(self, other: tuple[int, ...]) -> bool:
            nonlocal comparisons
            comparisons += 1
            return tuple(self) < other

        def __le__(self, other: tuple[int, ...]) -> bool:
            nonlocal comparisons
            comparisons += 1
            return tuple(self) <= other

        def __ge__(self, other: tuple[int, ...]) -> bool:
            nonlocal comparisons
            comparisons += 1
            return tuple(self) >= other

    rules = ShardRules(exhausted=tuple(((n, 0), (n, 5)) for n in range(0, 4_000, 2)))
    found = [rules.outcome(Counted(number), None) for number in ((0, 0), (20, 5), (20, 6), (21, 0))]
    assert found == [Outcome.EXHAUSTED, Outcome.EXHAUSTED, None, None]
    assert rules.outcome(Counted((9_999, 0)), None) is None
    assert comparisons < 100


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


def test_rows_out_of_order_are_refused_with_block_key() -> None:
    with pytest.raises(BatchContentError, match="repartition"):
        mapped(one_row, rows(2, 1), on_failure=OnFailure.BLOCK_KEY)
    assert len(mapped(one_row, rows(2, 1)).output) == 2


@pytest.mark.parametrize("names", [[], ["id", "ID"]])
def test_a_schema_without_columns_or_with_a_column_twice_is_refused(names: Sequence[str]) -> None:
    with pytest.raises(ConfigError, match=r"schema passed to batch\.map_records"):
        OutputColumns(tuple(OutputColumn(name, pa.string(), "string") for name in names))


def plan(*retries: PlannedRetry) -> Plan:
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(99)), max_records=10, retries=retries
    )
    return Plan(
        plan_id="1-a",
        created_ms=0,
        tasks=(TaskPlan(shards=(one,), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1),),
    )


def states(*numbered: tuple[int, str | None]) -> dict[str, ShardState]:
    return {"s": with_records(state("s"), *(waiting(first, key=key) for first, key in numbered))}


def test_only_the_exhausted_retries_of_a_plan_are_withheld() -> None:
    made = plan(planned(3, exhausted=True), planned(5), planned(7, 9, exhausted=True))
    rules = plan_rules(made, {}, OnFailure.CONTINUE)["s"]
    outcomes = {number: rules.outcome((number, 0), None) for number in (3, 4, 5, 7, 8, 9, 10)}
    exhausted = (3, 7, 8, 9)
    assert outcomes == dict.fromkeys(outcomes) | dict.fromkeys(exhausted, Outcome.EXHAUSTED)


@pytest.mark.parametrize(
    ("record", "blocked"), [((5, "b"), {6: "b"}), ((3, "a"), {}), ((5, None), {6: "ab"})]
)
def test_a_record_queued_outside_the_plan_blocks_later_rows_of_its_key_and_a_range_all(
    record: tuple[int, str | None], blocked: dict[int, str]
) -> None:
    """A range has no key. The plan retries record 3."""
    rules = plan_rules(plan(planned(3)), states(record), OnFailure.BLOCK_KEY).get("s", ShardRules())
    for number in (4, 6):
        for key in "ab":
            outcome = Outcome.BLOCKED if key in blocked.get(number, "") else None
            assert rules.outcome((number, 0), key) is outcome
    assert plan_rules(plan(), states((5, None)), OnFailure.CONTINUE) == {}


def withheld_numbers(rules: dict[str, ShardRules], *numbered: tuple[int, str | None]) -> list[int]:
    """The numbers of the rows of shard s, given with their partition keys, that are withheld."""
    columns = ("shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "messageId")
    values = [("s", str(number), 0, key, f"s:{number}:1") for number, key in numbered]
    batch = pa.RecordBatch.from_pylist([dict(zip(columns, row, strict=True)) for row in values])
    found = pa.Table.from_batches(WithheldRowFinder(rules, with_keys=True)(iter([batch])))
    return [int(message_id.split(":")[1]) for message_id in found["messageId"].to_pylist()]


def test_block_key_a_queued_record_without_a_partition_key_blocks_only_itself() -> None:
    """As in a stream with record distribution AUTO. A range, whose keys are unknown, blocks all."""
    own = order_key(None, "s", (5, 0))
    numbered = ((4, None), (5, None), (6, None), (7, "a"))
    rules = plan_rules(plan(), states((5, own)), OnFailure.BLOCK_KEY)
    assert withheld_numbers(rules, *numbered) == []
    rules = plan_rules(plan(), states((5, None)), OnFailure.BLOCK_KEY)
    assert withheld_numbers(rules, *numbered) == [6, 7]
    rules = plan_rules(plan(), states((5, order_key("a", "s", (5, 0)))), OnFailure.BLOCK_KEY)
    assert withheld_numbers(rules, *numbered) == [7]


def over_a_split(*numbered: tuple[int, str | None]) -> dict[str, ShardState]:
    """The states of shard s, of its parent, and of its grandparent that these records wait in."""
    queued = states(*numbered)["s"].unresolved
    of_grandparent = with_records(state("g", ended=True), *queued)
    return {"s": state("s", "p"), "p": state("p", "g", ended=True), "g": of_grandparent}


@pytest.mark.parametrize(
    ("on_failure", "key", "blocked"),
    [
        (OnFailure.BLOCK_KEY, "a", "a"),
        (OnFailure.BLOCK_KEY, None, "ab"),
        (OnFailure.BLOCK_SHARD, "a", "ab"),
        (OnFailure.CONTINUE, None, ""),
    ],
)
def test_a_queued_record_of_an_ancestor_blocks_rows_whatever_their_numbers_are(
    on_failure: OnFailure, key: str | None, blocked: str
) -> None:
    """An ancestor's records are all before them."""
    rules = plan_rules(plan(planned(3)), over_a_split((500, key)), on_failure)
    for number in (0, 3, 600):
        for row_key in "ab":
            outcome = Outcome.BLOCKED if row_key in blocked else None
            assert rules["s"].outcome((number, 0), row_key) is outcome


def test_block_key_a_queued_record_of_an_ancestor_blocks_also_while_its_retry_is_in_the_plan() -> (
    None
):
    """The tasks of a plan run at a time, and the retry may fail again."""
    made = plan()
    retried = ShardSlice(shard_id="g", position=SHARD_END, max_records=0, retries=(planned(500),))
    task = TaskPlan(shards=(retried,), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
    rules = plan_rules(
        replace(made, tasks=(task, *made.tasks)), over_a_split((500, "a")), OnFailure.BLOCK_KEY
    )
    assert rules["s"].outcome((600, 0), "a") is Outcome.BLOCKED
    assert rules["g"].outcome((500, 0), "a") is None


def test_failed_records_block_their_key_or_shard_and_rejected_records_do_not() -> None:
    records = [
        FailedRecord.of(f"s:{number}:1", outcome, key=key)
        for number, outcome, key in (
            (7, Outcome.RETRY, "k"),
            (5, Outcome.RETRY, "k"),
            (6, Outcome.RETRY, "l"),
            (1, Outcome.REJECT, "k"),
        )
    ]
    assert failure_rules(records, OnFailure.CONTINUE) == {}
    assert failure_rules(records, OnFailure.BLOCK_KEY) == {
        "s": ShardRules(keys={"k": (5, 0), "l": (6, 0)})
    }
    assert failure_rules(records, OnFailure.BLOCK_SHARD) == {"s": ShardRules(waits_after=(5, 0))}


def content(shard: str, first: int, last: int, count: int, retries: int = 0) -> ShardContent:
    return ShardContent(
        shard_id=shard,
        new_count=count,
        first=SequenceNumber(first),
        last=SequenceNumber(last),
        retry_rows=retries,
    )


def ends(**changes: Any) -> dict[int, TaskResult]:
    values: dict[str, Any] = {
        "first": SequenceNumber(9),
        "last": SequenceNumber(100),
        "count": 5,
        "retry_rows": 2,
    } | changes
    return {
        0: TaskResult(
            shards=(ShardReadResult(shard_id="s", **values), ShardReadResult(shard_id="empty")),
        )
    }


NOTHING = ShardContent(shard_id="s")


def nothing_has(_found: ShardContent, _end: ShardReadResult) -> bool:
    return False


def test_rows_that_have_expired_since_they_were_published_are_named_and_not_refused() -> None:
    found = {"s": content("s", 50, 100, 3, 0)}
    asked: list[ShardContent] = []

    def has_expired(found: ShardContent, end: ShardReadResult) -> bool:
        asked.append(found)
        return end.shard_id == "s"

    assert check_content(found, ends(), "1-a", has_expired=has_expired) == ["s"]
    assert asked == [found["s"]]
    with pytest.raises(BatchContentError, match="of shard t"):
        check_content({"t": content("t", 1, 1, 1)} | found, ends(), "1-a", has_expired=has_expired)


RETRIES = (planned(2, 4), planned(6), planned(8))
END = ShardReadResult(
    shard_id="s",
    first=SequenceNumber(9),
    last=SequenceNumber(100),
    count=5,
    retries_done=3,
    retry_rows=5,
)


@pytest.mark.parametrize(
    ("found", "oldest", "expired"),
    [
        (content("s", 50, 100, 3), 50, True),
        (content("s", 50, 100, 3), 70, True),  # more has expired since
        (NOTHING, None, True),
        (content("s", 9, 100, 5, 1), 7, True),
        (content("s", 9, 100, 5, 4), 3, True),  # the range is left in part
        (content("s", 9, 100, 5), 9, True),
        (content("s", 50, 100, 3, 5), 2, False),  # all are there, so they were filtered out
        (content("s", 50, 100, 3), 30, False),  # 30 is there, and missing
        (content("s", 50, 70, 2), 50, False),  # the end is missing too
        (NOTHING, 50, False),
        (content("s", 9, 100, 5, 1), 6, False),  # 6 and 8 are there
        (content("s", 9, 100, 4), 9, False),  # the retries have expired, the new ones have not
        (content("s", 50, 100, 3, 2), 50, True),
    ],
)
def test_only_a_loss_at_the_beginning_that_the_service_confirms_is_expiry(
    found: ShardContent, oldest: int | None, *, expired: bool
) -> None:
    first = None if oldest is None else SequenceNumber(oldest)
    assert is_what_is_left(found, END, RETRIES, first) is expired


def test_the_service_is_asked_for_the_lowest_number_of_which_rows_were_published() -> None:
    """One that was gone already had no row."""
    gone = msgspec.structs.replace(END, retries_gone=(SequenceNumber(2),), retries_done=2)
    assert retries_with_rows(RETRIES, gone) == [RETRIES[1]]
    assert lowest_published(gone, [RETRIES[1]]) == SequenceNumber(6)
    assert lowest_published(gone, []) == SequenceNumber(9)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "contains 0 records and 0 retries of shard s"),
        ({"s": content("s", 9, 100, 4, 2)}, "4 records from 9 to 100 and 2 retries of shard s"),
        ({"s": content("s", 10, 100, 5, 2)}, "from 10 to 100"),
        ({"s": content("s", 9, 100, 5, 1)}, "1 retries"),
        ({"s": content("s", 9, 100, 5, 2), "t": content("t", 1, 1, 1)}, "of shard t"),
    ],
)
def test_other_rows_are_refused_naming_shard_and_plan(
    found: dict[str, ShardContent], message: str
) -> None:
    with pytest.raises(BatchContentError, match=message) as caught:
        check_content(found, ends(), "1-a", has_expired=nothing_has)
    assert "the tasks of batch 1-a published" in str(caught.value)
