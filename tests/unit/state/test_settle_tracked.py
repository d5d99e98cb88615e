from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from state.errors import PlanMismatchError
from state.plan import PlannedRetry, RangePart, ShardReadResult, ShardSlice, ShortRange
from state.position import SHARD_END, Position
from state.report import PlanReport, ShardOutcome
from state.settle import settle_shard, settle_tracked
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord, as_whole
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
    return settle_tracked(
        state, SLICE, end, ShardOutcome(shard_id=SHARD, unresolved=unresolved), PLAN
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


def test_records_that_were_read_and_that_the_outcome_does_not_name_are_acked() -> None:
    """New records and retries. Without an outcome, all of them."""
    after = replace(
        STATE,
        checkpoint=seq(99),
        read_position=Position.after(seq(99)),
        unresolved=(),
        settled_plan=PLAN,
        verified_until_ms=7_000,
    )
    assert settled() == after
    assert settle_tracked(STATE, SLICE, END, None, PLAN) == after
    assert settle_shard(STATE, END, PLAN, SLICE) == after


def test_records_that_the_outcome_names_are_queued_exactly_as_given() -> None:
    """New records, retries, records and ranges of a range, with keys and blocked, in the order of
    the shard.
    """
    left = (
        waiting(20, attempts=4, reason="again", first_failure_ms=1, last_failure_ms=2),
        waiting(31, attempts=2),
        waiting(35, 38, count=2, attempts=0),
        waiting(50, attempts=0, key="00ff", blocked=True),
        waiting(60, 69, count=10),
        waiting(99),
    )
    after = settled(*left)
    assert after.unresolved == left
    assert (after.checkpoint, after.read_position) == (seq(10), Position.after(seq(99)))


def test_all_records_that_were_read_may_stay_unresolved() -> None:
    """Then the checkpoint does not move."""
    left = (
        waiting(10, attempts=2),
        waiting(20, attempts=4),
        waiting(30, 39, count=4, attempts=2),
        waiting(50, 99, count=20),
    )
    after = settled(*left)
    assert (after.unresolved, after.checkpoint) == (left, seq(9))


def test_retries_that_were_not_read_stay_as_they_were() -> None:
    """The task ran out of time. They are planned again."""
    end = replace(END, retries_done=1, retry_rows=1)
    assert settled(end=end).unresolved == (OTHER, RANGE)
    assert settled(waiting(10, attempts=2), end=end).unresolved == (
        waiting(10, attempts=2),
        OTHER,
        RANGE,
    )
    assert (
        settle_shard(STATE, replace(END, retries_done=0), PLAN, SLICE).unresolved
        == STATE.unresolved
    )
    assert settle_shard(STATE, replace(END, retries_done=0), PLAN).unresolved == STATE.unresolved


def test_a_plan_of_retries_only_changes_nothing_else() -> None:
    """There is no new range, and nothing new is known of the tip."""
    slice_ = replace(SLICE, max_records=0)
    end = ShardReadResult(shard_id=SHARD, retries_done=3, retry_rows=6)
    outcome = ShardOutcome(shard_id=SHARD, unresolved=(waiting(20, attempts=4),))
    after = settle_tracked(replace(STATE, at_tip=True), slice_, end, outcome, PLAN)
    assert after == replace(
        STATE, checkpoint=seq(10), unresolved=outcome.unresolved, settled_plan=PLAN, at_tip=True
    )


def test_a_retry_that_is_gone_from_the_stream_is_resolved_with_the_others() -> None:
    """It was dead-lettered with its metadata."""
    end = replace(END, retries_gone=(seq(10), seq(20)), retry_rows=4)
    assert settled(end=end).unresolved == ()


def test_settling_again_changes_nothing() -> None:
    after = settled(waiting(20, attempts=4))
    assert settle_tracked(after, SLICE, END, None, PLAN) is after


def test_a_tracked_plan_before_the_last_settled_one_is_refused() -> None:
    """The states were moved, or `/plan` was removed: its records are not those that were acked."""
    with pytest.raises(PlanMismatchError, match=r"plan 3-b .*: plan 4-a is settled into it"):
        settle_tracked(settled(), SLICE, END, None, "3-b")


@pytest.mark.parametrize("of_end", [None, Position.at(seq(50))])
def test_a_range_that_was_read_from_another_position_than_the_states_is_refused(
    of_end: Position | None,
) -> None:
    """Another process has read on, or the state was restored: acking it would skip records."""
    elsewhere = replace(STATE, read_position=Position.after(seq(45)))
    with pytest.raises(PlanMismatchError, match=r"read from .*, and its state is at AFTER:45"):
        settled(state=elsewhere, end=replace(END, position=of_end))
    retries_only = replace(SLICE, max_records=0)
    end = ShardReadResult(shard_id=SHARD, retries_done=3, retry_rows=6)
    assert settle_tracked(elsewhere, retries_only, end, None, PLAN).unresolved == ()


def test_a_drained_shard_is_finished_by_the_ack_of_its_last_retry() -> None:
    """Its end was read before. It stays drained while a retry is left."""
    drained = replace(STATE, read_position=SHARD_END, lifecycle=Lifecycle.DRAINED)
    slice_ = replace(SLICE, position=SHARD_END, max_records=0)
    end = ShardReadResult(shard_id=SHARD, retries_done=3, retry_rows=6)
    left = ShardOutcome(shard_id=SHARD, unresolved=(waiting(35),))
    still = settle_tracked(drained, slice_, end, left, PLAN)
    assert (still.lifecycle, still.checkpoint, still.read_position) == (
        Lifecycle.DRAINED,
        seq(30),
        SHARD_END,
    )
    last = replace(slice_, retries=(planned(waiting(35)),))
    finished = settle_tracked(still, last, replace(end, retries_done=1, retry_rows=1), None, "5-a")
    assert (finished.lifecycle, finished.checkpoint, finished.unresolved) == (
        Lifecycle.FINISHED,
        seq(35),
        (),
    )
    with_end = settled(waiting(99), end=replace(END, at_shard_end=True))
    assert (with_end.lifecycle, with_end.read_position) == (Lifecycle.DRAINED, SHARD_END)


def test_a_retry_that_another_process_has_resolved_stays_resolved() -> None:
    """Also if this batch failed it: it was processed, and a late failure is ignored."""
    resolved = replace(STATE, unresolved=(OTHER, RANGE))
    assert settled(state=resolved).unresolved == ()
    assert settled(waiting(10, attempts=2), state=resolved).unresolved == ()


def test_a_retry_that_another_process_has_tried_since_is_refused() -> None:
    """Its attempts would be counted back."""
    tried = replace(STATE, unresolved=(replace(ALONE, attempts=ALONE.attempts + 1), OTHER, RANGE))
    with pytest.raises(PlanMismatchError, match=r"the retry 10 to 10, attempt .* is stored as"):
        settled(state=tried)


def test_a_rejected_record_is_settled_like_any_other() -> None:
    """It was read again only to be dead-lettered."""
    rejected = replace(STATE, unresolved=(replace(ALONE, rejected=True), OTHER, RANGE))
    assert settled(state=rejected).unresolved == ()
    undone = settle_tracked(rejected, SLICE, replace(END, retries_done=0), None, PLAN)
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
        ([waiting(60), waiting(50)], "not in ascending order"),
        ([waiting(60), waiting(60)], "not in ascending order"),
        ([waiting(60, 70, count=3), waiting(65)], "not in ascending order"),
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


def test_an_outcome_of_a_retry_that_was_not_read_is_refused() -> None:
    """The batch cannot have processed it."""
    with pytest.raises(PlanMismatchError, match="20 to 20 was not read, or not as one range"):
        settled(waiting(20), end=replace(END, retries_done=1))


def test_a_retry_that_is_stored_in_another_form_is_refused() -> None:
    """Acking the stored range would ack records that were not read."""
    wider = replace(STATE, unresolved=(waiting(10, 12, count=3), OTHER, RANGE))
    with pytest.raises(PlanMismatchError, match=r"the retry 10 to 10, .* is stored as 10 to 12"):
        settled(state=wider)


@pytest.mark.parametrize("done", [4, -1])
def test_more_retries_than_were_planned_are_refused(done: int) -> None:
    """Also if no slice is given."""
    with pytest.raises(PlanMismatchError, match=f"says that {done} of 3 planned retries were read"):
        settled(end=replace(END, retries_done=done))
    with pytest.raises(PlanMismatchError, match=f"says that {done} of 0 planned retries were read"):
        settle_shard(STATE, replace(END, retries_done=done), PLAN)


def test_values_of_another_shard_are_refused() -> None:
    """A slice, and an outcome."""
    with pytest.raises(
        ValueError,
        match=f"outcome of shard other cannot be settled into the state of shard {SHARD}",
    ):
        settle_tracked(STATE, SLICE, END, ShardOutcome(shard_id="other"), PLAN)
    with pytest.raises(
        ValueError, match=f"slice of shard other cannot be settled into the state of shard {SHARD}"
    ):
        settle_tracked(STATE, replace(SLICE, shard_id="other"), END, None, PLAN)


# ranges that were read in part --------------------------------------------------------------------
PART = replace(
    END,
    retries_done=2,
    retry_rows=5,
    retry_part=RangePart(last=seq(33), rest=seq(35), count=3),
)
REST = waiting(35, 39, count=2)  # of the four, two are counted at least: its ends


def test_of_a_range_that_was_read_in_part_the_rest_stays_queued_as_it_was() -> None:
    stored = replace(RANGE, count=9, reason="why", first_failure_ms=1, key="k", rejected=True)
    state = replace(STATE, unresolved=(ALONE, OTHER, stored))
    after = settled(end=PART, state=state)
    assert after.unresolved == (replace(stored, first=seq(35), count=6),)
    assert settle_shard(state, PART, PLAN, SLICE) == after
    assert settle_tracked(state, SLICE, PART, None, PLAN) == after


def test_the_rest_of_a_range_counts_its_own_ends_at_least() -> None:
    assert settled(end=PART).unresolved == (REST,)
    last = replace(PART, retry_part=RangePart(last=seq(33), rest=seq(39), count=1))
    assert settled(end=last).unresolved == (waiting(39),)


def test_the_rest_of_a_range_does_not_count_records_that_are_gone() -> None:
    short = replace(PART, retries_short=(ShortRange(first=seq(30), missing=1),))
    state = replace(STATE, unresolved=(ALONE, OTHER, replace(RANGE, count=9)))
    assert settled(end=short, state=state).unresolved == (waiting(35, 39, count=5),)


def test_failed_records_of_a_part_are_queued_by_the_outcome_before_the_rest() -> None:
    left = (waiting(31, attempts=2), waiting(33, attempts=2))
    assert settled(*left, end=PART).unresolved == (*left, REST)
    whole = (waiting(30, 33, count=3, attempts=0),)
    assert settled(*whole, end=PART).unresolved == (*whole, REST)


def test_an_outcome_for_a_record_of_the_rest_is_refused() -> None:
    """It was not read."""
    for record in (waiting(35), waiting(33, 35, count=2)):
        with pytest.raises(PlanMismatchError, match="was not read"):
            settled(record, end=PART)


def test_a_part_of_a_range_that_an_operator_resolved_leaves_no_rest() -> None:
    assert settled(end=PART, state=replace(STATE, unresolved=(ALONE, OTHER))).unresolved == ()


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
