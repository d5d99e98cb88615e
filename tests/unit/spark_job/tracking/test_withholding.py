"""Rows are withheld by the plan, by queued records outside the plan, and by records that failed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from spark_job.tracking.outcomes import FailedRecord, Outcome, order_key
from spark_job.tracking.withholding import ShardRules, WithheldRowFinder, failure_rules, plan_rules
from state.plan import Plan, PlannedRetry, ShardSlice, TaskPlan
from state.position import SHARD_END, Position
from state.report import OnFailure
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord


def plan(*retries: PlannedRetry) -> Plan:
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(99)), max_records=10, retries=retries
    )
    return Plan(
        plan_id="1-a",
        created_ms=0,
        tasks=(TaskPlan(shards=(one,), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1),),
    )


def planned(first: int, last: int | None = None, **more: Any) -> PlannedRetry:
    return PlannedRetry(
        first=SequenceNumber(first), last=SequenceNumber(last) if last else None, attempts=1, **more
    )


def states(*rows: tuple[int, str | None]) -> dict[str, ShardState]:
    waiting = tuple(
        UnresolvedRecord(
            first=SequenceNumber(first), last=SequenceNumber(first), attempts=1, due_ms=0, key=key
        )
        for first, key in rows
    )
    return {
        "s": ShardState(
            shard_id="s", read_position=Position.after(SequenceNumber(99)), unresolved=waiting
        )
    }


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


def withheld(rules: dict[str, ShardRules], *rows: tuple[int, str | None]) -> list[int]:
    """The numbers of the rows of shard s, given with their partition keys, that are withheld."""
    columns = ("shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "messageId")
    values = [("s", str(number), 0, key, f"s:{number}:1") for number, key in rows]
    batch = pa.RecordBatch.from_pylist([dict(zip(columns, row, strict=True)) for row in values])
    found = pa.Table.from_batches(WithheldRowFinder(rules, with_keys=True)(iter([batch])))
    return [int(message_id.split(":")[1]) for message_id in found["messageId"].to_pylist()]


def test_block_key_a_queued_record_without_a_partition_key_blocks_only_itself() -> None:
    """As in a stream with record distribution AUTO. A range, whose keys are unknown, blocks all."""
    own = order_key(None, "s", (5, 0))
    rows = ((4, None), (5, None), (6, None), (7, "a"))
    rules = plan_rules(plan(), states((5, own)), OnFailure.BLOCK_KEY)
    assert withheld(rules, *rows) == []
    rules = plan_rules(plan(), states((5, None)), OnFailure.BLOCK_KEY)
    assert withheld(rules, *rows) == [6, 7]
    rules = plan_rules(plan(), states((5, order_key("a", "s", (5, 0)))), OnFailure.BLOCK_KEY)
    assert withheld(rules, *rows) == [7]


def over_a_split(*rows: tuple[int, str | None]) -> dict[str, ShardState]:
    """The states of shard s, of its parent, and of its grandparent that these records wait in."""
    of_grandparent = ShardState(
        shard_id="g", read_position=SHARD_END, unresolved=states(*rows)["s"].unresolved
    )
    of_parent = ShardState(shard_id="p", read_position=SHARD_END, parents=("g",))
    of_shard = ShardState(
        shard_id="s", read_position=Position.at(SequenceNumber(99)), parents=("p",)
    )
    return {"s": of_shard, "p": of_parent, "g": of_grandparent}


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


def failed(number: int, outcome: Outcome = Outcome.RETRY, key: str | None = "k") -> FailedRecord:
    return FailedRecord(
        message_id=f"s:{number}:1",
        shard_id="s",
        sequence=SequenceNumber(number),
        attempt=1,
        outcome=outcome,
        key=key,
    )


def test_failed_records_block_their_key_or_shard_and_rejected_records_do_not() -> None:
    records = [failed(7), failed(5), failed(6, key="l"), failed(1, Outcome.REJECT)]
    assert failure_rules(records, OnFailure.CONTINUE) == {}
    assert failure_rules(records, OnFailure.BLOCK_KEY) == {
        "s": ShardRules(keys={"k": (5, 0), "l": (6, 0)})
    }
    assert failure_rules(records, OnFailure.BLOCK_SHARD) == {"s": ShardRules(waits_after=(5, 0))}
