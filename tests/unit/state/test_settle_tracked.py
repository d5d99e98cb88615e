from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from state.errors import PlanMismatchError
from state.plan import PlannedRetry, RangePart, ShardReadResult, ShardSlice
from state.position import Position
from state.report import PlanReport, ShardOutcome
from state.settle import settle_shard
from state.shard_state import ShardState, UnresolvedRecord, as_whole
from tests.support.state.tracker import SHARD, seq

PLAN = "4-a"


def waiting(
    first: int, last: int | None = None, *, count: int = 1, attempts: int = 1, **fields: Any
) -> UnresolvedRecord:
    return UnresolvedRecord(
        first=seq(first),
        last=seq(first if last is None else last),
        count=count,
        attempts=attempts,
        due_ms=7,
        **fields,
    )


def planned(record: UnresolvedRecord) -> PlannedRetry:
    last = None if record.first == record.last else record.last
    return PlannedRetry(first=record.first, last=last, count=record.count, attempts=record.attempts)


# Acked up to 9, read up to 40; 10, 20 and the range from 30 to 39 wait.
ALONE, OTHER, RANGE = waiting(10), waiting(20, attempts=3), waiting(30, 39, count=4)
STATE = ShardState(
    shard_id=SHARD,
    checkpoint=seq(9),
    read_position=Position.after(seq(40)),
    unresolved=(ALONE, OTHER, RANGE),
    settled_plan="3-a",
)
SLICE = ShardSlice(
    shard_id=SHARD,
    position=STATE.read_position,
    max_records=100,
    retries=(planned(ALONE), planned(OTHER), planned(RANGE)),
)
END = ShardReadResult(
    shard_id=SHARD,
    first=seq(50),
    last=seq(99),
    count=20,
    retries_done=3,
    retry_rows=6,
    last_arrival_ms=7_000,
)


def settled(
    *unresolved: UnresolvedRecord, end: ShardReadResult = END, state: ShardState = STATE
) -> ShardState:
    return settle_shard(
        state, end, PLAN, SLICE, ShardOutcome(shard_id=SHARD, unresolved=unresolved)
    )


def test_what_was_delivered_whole_stays_so_until_it_is_acked() -> None:
    """Where it fails again, also as a part of its range. New failures are as the outcome says."""
    state = replace(STATE, unresolved=(*as_whole([ALONE]), OTHER, *as_whole([RANGE])))
    again, one_of_range = replace(ALONE, attempts=2), waiting(35, attempts=2)
    new = waiting(60)
    after = settled(again, replace(OTHER, attempts=4), one_of_range, new, state=state)
    assert [one.whole for one in after.unresolved] == [True, False, True, False]
    report = PlanReport(shards=(ShardOutcome(shard_id=SHARD, unresolved=(new,)),))
    (outcome,) = report.of_whole_records.shards
    assert settled(*outcome.unresolved, state=state).unresolved == (replace(new, whole=True),)


def test_what_was_delivered_unpacked_stays_so_in_a_batch_of_whole_records() -> None:
    """Its number without a sub-sequence number is still that of a first user record."""
    again = replace(ALONE, attempts=2)
    report = PlanReport(shards=(ShardOutcome(shard_id=SHARD, unresolved=(again, waiting(60))),))
    (outcome,) = report.of_whole_records.shards
    assert settled(*outcome.unresolved).unresolved == (again, replace(waiting(60), whole=True))


@pytest.mark.parametrize("of_end", [None, Position.at(seq(50))])
def test_a_range_that_was_read_from_another_position_than_the_states_is_refused(
    of_end: Position | None,
) -> None:
    """Another process has read on, or the state was restored: acking it would skip records."""
    elsewhere = replace(STATE, read_position=Position.after(seq(45)))
    told = f"^plan 4-a does not fit the state of shard {SHARD}: it was read from .* is at AFTER:45$"
    with pytest.raises(PlanMismatchError, match=told):
        settled(state=elsewhere, end=replace(END, position=of_end))
    one, empty = replace(SLICE, max_records=1), ShardReadResult(shard_id=SHARD, position=of_end)
    with pytest.raises(PlanMismatchError, match=told):
        settle_shard(elsewhere, empty, PLAN, one)
    retries_only = replace(SLICE, max_records=0)
    end = ShardReadResult(shard_id=SHARD, retries_done=3, retry_rows=6)
    assert settle_shard(elsewhere, end, PLAN, retries_only).unresolved == ()


def test_a_retry_that_another_process_has_resolved_stays_resolved() -> None:
    """Also if this batch failed it: it was processed, and a late failure is ignored."""
    resolved = replace(STATE, unresolved=(OTHER, RANGE))
    assert settled(state=resolved).unresolved == ()
    assert settled(waiting(10, attempts=2), state=resolved).unresolved == ()
    assert settled(end=PART, state=replace(STATE, unresolved=(ALONE, OTHER))).unresolved == ()


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (replace(ALONE, attempts=2), "10 to 10 with 2"),
        (waiting(10, 12, count=3), "10 to 12 with 1"),
    ],
)
def test_a_retry_that_is_stored_otherwise_than_it_was_planned_is_refused(
    stored: UnresolvedRecord, told: str
) -> None:
    """Another process has tried it since: its attempts would be counted back. Of a wider range,
    records that were not read would be acked.
    """
    state = replace(STATE, unresolved=(stored, OTHER, RANGE))
    with pytest.raises(
        PlanMismatchError, match=rf"retry 10 to 10, attempt 2, is stored as {told} attempts"
    ):
        settled(state=state)


def test_a_rejected_record_is_settled_like_any_other() -> None:
    """It was read again only to be dead-lettered."""
    rejected = replace(STATE, unresolved=(replace(ALONE, rejected=True), OTHER, RANGE))
    assert settled(state=rejected).unresolved == ()
    undone = settle_shard(rejected, replace(END, retries_done=0), PLAN, SLICE)
    assert undone.unresolved == rejected.unresolved


@pytest.mark.parametrize(
    ("left", "what"),
    [
        ([waiting(45)], "45 to 45 was not read, or not as one range"),
        ([waiting(9)], "9 to 9 was not read, or not as one range"),
        ([waiting(100)], "100 to 100 was not read, or not as one range"),
        ([waiting(40)], "40 to 40 was not read, or not as one range"),
        ([waiting(38, 55, count=3)], "38 to 55 was not read, or not as one range"),
        ([waiting(10, 20, count=2)], "10 to 20 was not read, or not as one range"),
        ([waiting(60), waiting(50)], "its records are not in ascending order$"),
        ([waiting(60), waiting(60)], "its records are not in ascending order$"),
        ([waiting(60, 70, count=3), waiting(65)], "its records are not in ascending order$"),
        ([waiting(60, 70, count=1)], "cannot be split out"),
        ([waiting(60, count=2)], "cannot be split out"),
        ([waiting(60, 70, count=19)], "cannot be split out"),
        ([waiting(50, 98, count=20)], "cannot be split out"),
        ([waiting(10, count=2)], "cannot be split out"),
    ],
)
def test_an_outcome_that_does_not_fit_what_was_read_is_refused(
    left: list[UnresolvedRecord], what: str
) -> None:
    """The error is one sentence that names plan and shard."""
    with pytest.raises(
        PlanMismatchError, match=rf"plan 4-a does not fit the state of shard {SHARD}: .*{what}"
    ) as refused:
        settled(*left)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("done", [4, -1])
def test_more_retries_than_were_planned_are_refused(done: int) -> None:
    """Also if no slice is given."""
    with pytest.raises(PlanMismatchError, match=f"says that {done} of 3 planned retries were read"):
        settled(end=replace(END, retries_done=done))
    with pytest.raises(PlanMismatchError, match=f"says that {done} of 0 planned retries were read"):
        settle_shard(STATE, replace(END, retries_done=done), PLAN)


def test_values_of_another_shard_are_refused() -> None:
    """A slice, a read result, and an outcome."""
    with pytest.raises(ValueError, match=f"^the read result of shard other .* shard {SHARD};"):
        settle_shard(STATE, replace(END, shard_id="other"), PLAN, SLICE)
    with pytest.raises(
        ValueError,
        match=f"outcome of shard other cannot be settled into the state of shard {SHARD}",
    ):
        settle_shard(STATE, END, PLAN, SLICE, ShardOutcome(shard_id="other"))
    with pytest.raises(
        ValueError, match=f"slice of shard other cannot be settled into the state of shard {SHARD}"
    ):
        settle_shard(STATE, END, PLAN, replace(SLICE, shard_id="other"))


# ranges that were read in part --------------------------------------------------------------------
PART = replace(
    END,
    retries_done=2,
    retry_rows=5,
    retry_part=RangePart(last=seq(33), rest=seq(35), count=3),
)


@pytest.mark.parametrize(
    ("last", "rest", "count", "done"),
    [(29, 30, 1, 2), (33, 33, 1, 2), (33, 40, 1, 2), (33, 35, 0, 2), (33, 35, 1, 3)],
)
def test_a_part_that_is_not_of_its_range_is_refused(
    last: int, rest: int, count: int, done: int
) -> None:
    part = RangePart(last=seq(last), rest=seq(rest), count=count)
    with pytest.raises(PlanMismatchError, match="the read result of shard"):
        settled(end=replace(PART, retry_part=part, retries_done=done))
