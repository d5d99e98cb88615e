from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from state.errors import PlanMismatchError
from state.plan import (
    ChildShard,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.report import PlanReport
from state.settle import children_first, settle_shard
from state.shard_state import FIRST_READ_GRACE_MS, ShardState, UnresolvedRecord, as_whole
from state.store.shard_states import StateChange, StoredState
from tests.support.state.shard_values import retry, waiting
from tests.support.state.tracker import SHARD, fresh_state, seq

END = ShardReadResult(shard_id=SHARD, first=seq(10), last=seq(99), count=50, last_arrival_ms=7_000)
EMPTY = ShardReadResult(shard_id=SHARD, at_tip=True, tip_ms=9_000)
READ = ShardState(
    shard_id=SHARD,
    checkpoint=seq(99),
    read_position=Position.after(seq(99)),
    settled_plan="4-a",
    verified_until_ms=7_000,
)


def settled_new(state: ShardState, end: ShardReadResult, plan_id: str) -> ShardState:
    """As a plan without retries settles it that has read from where the state is."""
    planned = ShardSlice(shard_id=SHARD, position=state.read_position, max_records=100)
    return settle_shard(state, end, plan_id, planned)


def test_a_plan_before_the_last_settled_one_is_refused() -> None:
    """Plans are ordered by number, not as texts. One with the same number and another nonce is
    another plan.
    """
    assert settled_new(READ, EMPTY, "4-b").settled_plan == "4-b"
    told = (
        f"batch 3-b does not fit .* {SHARD}: the outcomes of the later batch 4-a are already stored"
    )
    with pytest.raises(PlanMismatchError, match=told):
        settled_new(READ, EMPTY, "3-b")
    with pytest.raises(PlanMismatchError, match="batch 10-a are already stored"):
        settled_new(replace(READ, settled_plan="10-a"), EMPTY, "9-a")


def test_an_empty_read_leaves_the_position_and_verifies_up_to_its_tip() -> None:
    """No record can have been missed before the time at which the service reported the tip."""
    assert settled_new(fresh_state(), EMPTY, "4-a") == replace(
        fresh_state(), settled_plan="4-a", verified_until_ms=9_000, at_tip=True
    )
    assert settled_new(READ, EMPTY, "5-a") == replace(
        READ, settled_plan="5-a", verified_until_ms=9_000, at_tip=True
    )


def test_the_verified_time_never_moves_back() -> None:
    """Arrival times are not in order. A read that knows no time changes nothing."""
    assert (
        settled_new(replace(fresh_state(), verified_until_ms=8_000), END, "4-a").verified_until_ms
        == 8_000
    )
    assert settled_new(fresh_state(), replace(EMPTY, tip_ms=None), "4-a").verified_until_ms is None
    assert settled_new(fresh_state(), replace(END, tip_ms=9_500), "4-a").verified_until_ms == 9_500


def test_the_first_read_of_a_backlog_verifies_what_it_has_read_and_some_minutes() -> None:
    """Of an application that has begun, the time of the start says nothing of records that are
    older: they may expire before they are read. Later reads are a shard's first no more.
    """
    begun = replace(fresh_state(), verified_until_ms=86_400_000)
    first = settled_new(begun, END, "4-a")
    assert END.last_arrival_ms is not None
    assert first.verified_until_ms == END.last_arrival_ms + FIRST_READ_GRACE_MS
    assert settled_new(begun, EMPTY, "4-a").verified_until_ms == begun.verified_until_ms
    tip = replace(END, at_tip=True, tip_ms=90_000_000)
    assert settled_new(begun, tip, "4-a").verified_until_ms == 90_000_000
    late = replace(begun, read_position=Position.after(seq(9)))
    assert settled_new(late, END, "4-a").verified_until_ms == late.verified_until_ms


@pytest.mark.parametrize(
    ("state", "refused"),
    [
        ({"read_position": Position.after(seq(10))}, True),
        ({"read_position": Position.at(seq(11))}, True),
        ({"read_position": SHARD_END}, True),
        ({"checkpoint": seq(10)}, True),
        ({"read_position": Position.after(seq(9))}, False),
        ({"read_position": Position.at(seq(10))}, False),
        ({"read_position": Position.at_timestamp(5)}, False),
    ],
)
def test_a_read_before_the_position_or_the_checkpoint_is_refused(
    state: dict[str, Any], *, refused: bool
) -> None:
    """It would move the checkpoint back, or ack records that were never read. AT includes its
    record, AFTER does not.
    """
    before = replace(fresh_state(), **state)
    if refused:
        with pytest.raises(
            PlanMismatchError, match=f"shard {SHARD}: emission of record 10 .*not allowed"
        ):
            settled_new(before, END, "4-a")
    else:
        assert settled_new(before, END, "4-a").checkpoint == seq(99)


def test_a_range_of_which_nothing_was_handed_over_is_passed() -> None:
    """The shard owns none of the user records of its aggregates."""
    for last in (seq(10), seq(99)):
        state = settled_new(fresh_state(), replace(END, last=last, count=0), "4-a")
        assert (state.read_position, state.checkpoint) == (Position.after(last), last)


@pytest.mark.parametrize(
    "end",
    [
        replace(END, count=-1),
        replace(END, first=None),
        replace(END, last=None),
        replace(EMPTY, count=1),
        replace(END, first=seq(99), last=seq(10)),
        replace(END, last=seq(10), count=2),
        replace(END, count=1),
    ],
)
def test_a_read_result_that_contradicts_itself_is_refused(end: ShardReadResult) -> None:
    """Descending numbers, too, or more or fewer records than the numbers allow. The error names the
    shard.
    """
    with pytest.raises(PlanMismatchError, match=f"shard {SHARD}[ :]"):
        settled_new(fresh_state(), end, "4-a")


def test_states_of_new_children_come_before_those_of_their_parents_once_each() -> None:
    """A child starts at its oldest record, whatever the application's start was. One that is named
    twice, or by two parents, as after a merge, gets one state; a known child gets none.
    """
    merged = ChildShard(shard_id="shardId-3", parents=(SHARD, "shardId-1"))
    known = ChildShard(shard_id="shardId-2", parents=(SHARD,))
    ends = [
        replace(END, shard_id=shard_id, at_shard_end=True, children=children)
        for shard_id, children in ((SHARD, (known, merged, merged)), ("shardId-1", (merged,)))
    ]
    stored = StoredState(state=fresh_state(), version=1)
    parent = StateChange(before=stored, after=replace(stored.state, settled_plan="p"))
    found = children_first([parent], ends, {SHARD, "shardId-1", "shardId-2"}, tracked_since_ms=7)
    child = ShardState(
        shard_id="shardId-3",
        read_position=TRIM_HORIZON,
        parents=(SHARD, "shardId-1"),
        verified_until_ms=7,
    )
    assert found == [StateChange(before=None, after=child), parent]


# tracked batches: retries, ranges and outcomes ----------------------------------------------------
PLAN = "4-a"


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
    retries=(retry(10), retry(20, attempts=3), retry(30, 39, count=4)),
)
RETRIED = ShardReadResult(
    shard_id=SHARD,
    first=seq(50),
    last=seq(99),
    count=20,
    retries_done=3,
    retry_rows=6,
    last_arrival_ms=7_000,
)


def settled(
    *unresolved: UnresolvedRecord, end: ShardReadResult = RETRIED, state: ShardState = STATE
) -> ShardState:
    return settle_shard(state, end, PLAN, SLICE, unresolved)


def test_what_was_delivered_whole_stays_so_until_it_is_acked() -> None:
    """Where it fails again, also as a part of its range. New failures are as the outcome says."""
    state = replace(STATE, unresolved=(*as_whole([ALONE]), OTHER, *as_whole([RANGE])))
    again, one_of_range = replace(ALONE, attempts=2), waiting(35, attempts=2)
    new = waiting(60)
    after = settled(again, replace(OTHER, attempts=4), one_of_range, new, state=state)
    assert [one.whole for one in after.unresolved] == [True, False, True, False]
    (left,) = PlanReport(unresolved={SHARD: (new,)}).of_whole_records.unresolved.values()
    assert settled(*left, state=state).unresolved == (replace(new, whole=True),)


def test_what_was_delivered_unpacked_stays_so_in_a_batch_of_whole_records() -> None:
    """Its number without a sub-sequence number is still that of a first user record."""
    again = replace(ALONE, attempts=2)
    report = PlanReport(unresolved={SHARD: (again, waiting(60))})
    (left,) = report.of_whole_records.unresolved.values()
    assert settled(*left).unresolved == (again, replace(waiting(60), whole=True))


def test_a_plan_of_retries_only_changes_nothing_else() -> None:
    """There is no new range, and nothing new is known of the tip."""
    at_tip = replace(STATE, at_tip=True)
    end = ShardReadResult(shard_id=SHARD, retries_done=3, retry_rows=6)
    left = (waiting(20, attempts=4),)
    after = settle_shard(at_tip, end, PLAN, replace(SLICE, max_records=0), left)
    assert after == replace(at_tip, checkpoint=seq(10), unresolved=left, settled_plan=PLAN)
    looked = settle_shard(at_tip, end, PLAN, replace(SLICE, max_records=1), left)
    assert looked == replace(after, at_tip=False)


@pytest.mark.parametrize("of_end", [None, Position.at(seq(50))])
def test_a_range_that_was_read_from_another_position_than_the_states_is_refused(
    of_end: Position | None,
) -> None:
    """Another process has read on, or the state was restored: acking it would skip records."""
    elsewhere = replace(STATE, read_position=Position.after(seq(45)))
    told = f"{PLAN} does .* {SHARD}: .*, but the stored read position is AFTER:45$"
    with pytest.raises(PlanMismatchError, match=told):
        settled(state=elsewhere, end=replace(RETRIED, position=of_end))
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
        PlanMismatchError, match=rf"10 to 10 in attempt 2, but the stored range is {told} attempts"
    ):
        settled(state=state)


def test_a_rejected_record_is_settled_like_any_other() -> None:
    """It was read again only to be dead-lettered."""
    rejected = replace(STATE, unresolved=(replace(ALONE, rejected=True), OTHER, RANGE))
    assert settled(state=rejected).unresolved == ()
    undone = settle_shard(rejected, replace(RETRIED, retries_done=0), PLAN, SLICE)
    assert undone.unresolved == rejected.unresolved


@pytest.mark.parametrize(
    ("left", "what"),
    [
        ([waiting(45)], "not read the failed records 45 to 45 as one range"),
        ([waiting(9)], "not read the failed records 9 to 9 as one range"),
        ([waiting(100)], "not read the failed records 100 to 100 as one range"),
        ([waiting(40)], "not read the failed records 40 to 40 as one range"),
        ([waiting(38, 55, count=3)], "not read the failed records 38 to 55 as one range"),
        ([waiting(10, 20, count=2)], "not read the failed records 10 to 20 as one range"),
        ([waiting(60), waiting(50)], "are not in ascending order$"),
        ([waiting(60), waiting(60)], "are not in ascending order$"),
        ([waiting(60, 70, count=3), waiting(65)], "are not in ascending order$"),
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
        PlanMismatchError,
        match=rf"batch 4-a does not fit the state of shard {SHARD}: .*{what}",
    ) as refused:
        settled(*left)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("done", [4, -1])
def test_more_retries_than_were_planned_are_refused(done: int) -> None:
    """Also if none was planned."""
    with pytest.raises(
        PlanMismatchError, match=f"counts {done} read retries, but the batch planned 3"
    ):
        settled(end=replace(RETRIED, retries_done=done))
    with pytest.raises(
        PlanMismatchError, match=f"counts {done} read retries, but the batch planned 0"
    ):
        settled_new(STATE, replace(RETRIED, retries_done=done), PLAN)


def test_values_of_another_shard_are_refused() -> None:
    """A slice, and a read result."""
    with pytest.raises(ValueError, match=f"^the read result of shard other .* shard {SHARD};"):
        settle_shard(STATE, replace(RETRIED, shard_id="other"), PLAN, SLICE)
    with pytest.raises(
        ValueError, match=f"slice of shard other cannot be stored in the state of shard {SHARD}"
    ):
        settle_shard(STATE, RETRIED, PLAN, replace(SLICE, shard_id="other"))


# ranges that were read in part --------------------------------------------------------------------
PART = replace(
    RETRIED,
    retries_done=2,
    retry_rows=5,
    retry_part=RangePart(last=seq(33), rest=seq(35), count=3),
)


def test_of_a_range_that_was_read_in_part_the_rest_stays_queued_as_it_was() -> None:
    """It counts neither the records that were read nor those that are gone."""
    stored = replace(RANGE, count=9, reason="why", first_failure_ms=1, key="k", rejected=True)
    state = replace(STATE, unresolved=(ALONE, OTHER, stored))
    for short, left in (((), 6), ((ShortRange(first=seq(30), missing=1),), 5)):
        after = settled(end=replace(PART, retries_short=short), state=state)
        assert after.unresolved == (replace(stored, first=seq(35), count=left),)


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
