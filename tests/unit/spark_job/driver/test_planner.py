"""The content of a plan, given the shard list, the shard states and the limits; and which queued
records are due, when, and in which order a plan takes them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_job.driver.planner import (
    Retries,
    assign,
    longest_round,
    make_plan,
    new_records,
    shares,
)
from spark_job.driver.retry_queue import RetryQueue, due_times
from state.codec.values import MAX_VALUE_BYTES, encode
from state.plan import (
    ChildShard,
    Fallback,
    Plan,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
    TaskPlan,
)
from state.position import TRIM_HORIZON, Position
from state.report import OnFailure, OutcomePolicy
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.support.state.shard_values import retry, state, with_records
from tests.support.state.shard_values import waiting as record

if TYPE_CHECKING:
    from state.shard_state import ShardState, UnresolvedRecord

SLICE_FIELDS = {*ShardSlice.__struct_fields__} - {"retries", "max_records"}
TASK = TaskPlan(shards=(), max_bytes=1_000, fetch_time_ms=5_000, fetch_cap_ms=60_000)


def by_id(*states: ShardState) -> dict[str, ShardState]:
    return {one.shard_id: one for one in states}


def whole_plan(
    shards: list[str],
    *states: ShardState,
    task: TaskPlan = TASK,
    most: int = 100,
    max_unresolved: int | None = None,
    **more: Any,
) -> Plan:
    """A plan for new records of `shards` and all queued records. `more`: also fields of slices, by
    shard.
    """
    hints = {name: more.pop(name) for name in SLICE_FIELDS if name in more}
    own = {name: more.pop(name) for name in Plan.__struct_fields__ if name in more}
    slices = {
        one.shard_id: ShardSlice(
            shard_id=one.shard_id,
            position=one.read_position,
            max_records=new_records(one, most, max_unresolved),
            verified_until_ms=one.verified_until_ms,
            **{name: of[one.shard_id] for name, of in hints.items() if one.shard_id in of},
        )
        for one in states
    }
    empty = Plan(plan_id="1-a", created_ms=7, tasks=(), **own)
    given: dict[str, Any] = {
        "max_tasks": 4,
        "max_records": None,
        "turn": 1,
        "retries": due_of(*states),
    }
    return make_plan(empty, task, shards, slices, **(given | more))


def plan_of(shards: list[str], *states: ShardState, **more: Any) -> list[ShardSlice]:
    return [piece for task in whole_plan(shards, *states, **more).tasks for piece in task.shards]


def test_a_plan_reads_each_shard_from_its_position_in_balanced_tasks() -> None:
    """Retries come with the hash keys alone, unless these are all there are."""
    names = [f"s{n}" for n in range(6)]
    task = msgspec.structs.replace(
        TASK, retention_ms=9, aggregated_records="unpack", consumer_arn="arn"
    )
    plan = whole_plan(
        names,
        *(state(name, verified_until_ms=3) for name in names),
        queued("other", 1),
        task=task,
        iterator={"s1": "hint", "other": "hint"},
        ending_sequence={"s1": SequenceNumber(5), "other": SequenceNumber(6)},
        next_read_ms={"s1": 11, "other": 12},
        next_subscribe_ms={"s1": 13, "other": 13},
        hash_keys={"s1": ("1", "2"), "other": ("3", "4")},
        until_ms=8,
        outages=3,
        delivery_limit=4,
    )
    slices = plan.slices
    assert sorted(slices) == ["other", *names]
    assert [len(task.shards) for task in plan.tasks] == [2, 2, 2, 1]
    assert slices["s1"] == ShardSlice(
        shard_id="s1",
        position=TRIM_HORIZON,
        max_records=100,
        iterator="hint",
        next_read_ms=11,
        next_subscribe_ms=13,
        ending_sequence=SequenceNumber(5),
        verified_until_ms=3,
        hash_keys=("1", "2"),
    )
    assert slices["s2"] == ShardSlice(
        shard_id="s2", position=TRIM_HORIZON, max_records=100, verified_until_ms=3
    )
    assert slices["other"] == ShardSlice(
        shard_id="other",
        position=TRIM_HORIZON,
        max_records=0,
        next_read_ms=12,
        retries=(retry(1),),
        hash_keys=("3", "4"),
    )
    assert (plan.plan_id, plan.created_ms, plan.until_ms) == ("1-a", 7, 8)
    assert (plan.outages, plan.delivery_limit, plan.aggregated_records) == (3, 4, "unpack")
    assert whole_plan(["a"], state("a")).outages == 0
    assert msgspec.structs.replace(plan.tasks[0], shards=()) == task


@given(st.lists(st.integers(0, 500).map("shardId-{:012}".format), unique=True), st.integers(1, 40))
def test_every_shard_is_in_one_group_and_the_groups_are_balanced(
    shards: list[str], tasks: int
) -> None:
    """None is lost or assigned twice, no group is empty, each group is in order, and neighbours
    get different tasks. Two listings of one stream give one plan.
    """
    groups = assign(shards, tasks)
    assert sorted(shard for group in groups for shard in group) == sorted(shards)
    assert len(groups) == min(tasks, len(shards))
    assert all(list(group) == sorted(group) for group in groups)
    sizes = [len(group) for group in groups] or [0]
    assert max(sizes) - min(sizes) <= 1
    group_of = {shard: number for number, group in enumerate(groups) for shard in group}
    together = [one for one, other in pairwise(sorted(shards)) if group_of[one] == group_of[other]]
    assert len(groups) < 2 or not together
    assert assign(shards[::-1], tasks) == groups


@given(st.integers(0, 40), st.integers(0, 200), st.integers(0, 1_000))
def test_a_limit_is_shared_as_a_whole_and_in_equal_parts(
    members: int, total: int, turn: int
) -> None:
    parts = shares(range(members), total, turn)
    assert sum(parts.values()) == (total if members else 0)
    assert len(parts) == min(members, total)
    assert not parts or 1 <= max(parts.values()) <= min(parts.values()) + 1


@pytest.mark.parametrize("total", [1, 2, 3, 5])
def test_a_trigger_limit_below_the_number_of_shards_starves_none(total: int) -> None:
    names = [f"s{n}" for n in range(7)]
    assert {one for turn in range(14) for one in shares(names, total, turn)} == {*names}


# retries ------------------------------------------------------------------------------------------
def queued(shard_id: str, *numbers: int) -> ShardState:
    return with_records(state(shard_id), *map(record, numbers))


def due_of(*states: ShardState, policy: OutcomePolicy | None = None) -> Retries:
    queue = RetryQueue()
    queue.update(by_id(*states), policy, 7)
    return queue.due(7)


@pytest.mark.parametrize(("allowance", "new"), [(5, {"a": 3, "b": 0}), (None, {"a": 6, "b": 6})])
def test_new_records_are_at_most_the_rest_of_the_allowance(
    allowance: int | None, new: dict[str, int]
) -> None:
    """None, where whole batches are acked: as many as a shard may give."""
    pieces = {
        one.shard_id: one.max_records
        for one in plan_of(
            ["a", "b"],
            queued("a", 1, 2),
            queued("b", *range(5)),
            most=6,
            max_unresolved=allowance,
        )
    }
    assert pieces == new


def test_a_shard_without_allowance_and_without_due_retries_is_not_in_the_plan() -> None:
    full = queued("a", 1)
    plan = whole_plan(["a", "b"], full, state("b"), max_unresolved=1, retries=())
    assert [one.shard_id for task in plan.tasks for one in task.shards] == ["b"]


def busy(index: int, retries: int, *, ranges: bool, shard_id: str) -> ShardState:
    """A shard with numbers as long as the service's. Of a range, two records are queued."""
    first = 10**55 + 10_000 * index
    numbers = range(first, first + 2 * retries, 2)
    return msgspec.structs.replace(
        state(shard_id),
        read_position=Position.after(SequenceNumber(first + 9_999)),
        unresolved=tuple(record(number, number + ranges, attempts=3) for number in numbers),
    )


@pytest.mark.parametrize("ranges", [False, True], ids=["records", "ranges"])
@pytest.mark.parametrize("id_length", [20, 128])
def test_the_tasks_of_a_plan_fit_into_their_znodes_and_so_does_each_log(
    *, ranges: bool, id_length: int
) -> None:
    """At worst: 500 shards with the longest iterators, 2,000 retries that are all gone or short,
    ends with children. What does not fit into one task is planned all the same.

    A log of half a znode is sealed. So the longest log is a little shorter when the longest round
    is appended to it, of which it has said nothing yet.
    """
    states = [
        busy(n, 2 if ranges else 4, ranges=ranges, shard_id=f"{n:0{id_length}}") for n in range(500)
    ]
    plan = whole_plan(
        [one.shard_id for one in states],
        *states,
        max_tasks=1,
        ending_sequence={one.shard_id: SequenceNumber(10**56 - 1) for one in states},
        iterator={one.shard_id: "i" * 512 for one in states},
    )
    pieces = [piece for task in plan.tasks for piece in task.shards]
    assert sum(len(piece.retries) for piece in pieces) == (1_000 if ranges else 2_000)
    assert {piece.shard_id for piece in pieces} == {one.shard_id for one in states}
    assert len(pieces) == 500
    assert all(piece.iterator for piece in pieces), "they are divided for their logs"
    for task in plan.tasks:
        assert len(encode(task, "task")) <= MAX_VALUE_BYTES
        for piece, longest in zip(task.shards, longest_round(task).entries, strict=True):
            assert shorter_fields(longest, all_is_said(piece)) == []
        last = TaskLog(entries=tuple(map(all_is_said, task.shards)))
        assert len(encode(last, "end")) <= len(encode(longest_round(task), "end"))
        log = log_of_half_a_znode(task)
        for said in (last, longest_round(task)):
            whole = TaskLog(entries=(*log.entries, *said.entries))
            assert len(encode(whole, "end")) <= MAX_VALUE_BYTES


def shorter_fields(longest: ShardReadResult, said: ShardReadResult) -> list[str]:
    """A field that is true says more than one that is false, which is left out."""
    return [
        name
        for name in said.__struct_fields__
        for one, other in [(getattr(longest, name), getattr(said, name))]
        if (one is not other if other is True else len(repr(one)) < len(repr(other)))
    ]


def test_a_task_has_250_shards_at_most_whatever_the_number_of_tasks_is() -> None:
    names = [f"{n:03}" for n in range(501)]
    plan = whole_plan(names, *map(state, names), max_tasks=1)
    assert [len(task.shards) for task in plan.tasks] == [167, 167, 167]


def log_of_half_a_znode(task: TaskPlan) -> TaskLog:
    """The longest log that is not sealed yet, of rounds of one shard."""
    read = ShardReadResult(shard_id=task.shards[0].shard_id, count=1)
    one = len(encode(TaskLog(entries=(read, read)), "")) - len(encode(TaskLog(entries=(read,)), ""))
    entries = (read,) * ((MAX_VALUE_BYTES // 2 - 100) // one)
    missing = MAX_VALUE_BYTES // 2 - len(encode(TaskLog(entries=entries), ""))
    filled = msgspec.structs.replace(read, iterator="i" * (missing - len(',"iterator":""')))
    log = TaskLog(entries=(*entries[1:], filled))
    assert len(encode(log, "")) == MAX_VALUE_BYTES // 2
    return log


def all_is_said(piece: ShardSlice) -> ShardReadResult:
    """As long an entry as a shard can have, but for the iterator, which is left out then."""
    number = SequenceNumber(10**56 - 1)
    children = tuple(
        ChildShard(shard_id=piece.shard_id, parents=(piece.shard_id, piece.shard_id))
        for _ in range(2)
    )
    return ShardReadResult(
        shard_id=piece.shard_id,
        first=number,
        last=number,
        count=10_000_000,
        last_arrival_ms=1_700_000_000_000,
        at_tip=True,
        tip_ms=1_700_000_000_000,
        at_shard_end=True,
        children=children,
        gone=True,
        millis_behind_latest=604_800_000,
        retries_done=2_000,
        retry_rows=1_000_000,
        retries_gone=tuple(one.first for one in piece.retries if one.last is None),
        retries_short=tuple(
            ShortRange(first=one.first, missing=100_000)
            for one in piece.retries
            if one.last is not None
        ),
        retry_part=RangePart(last=number, rest=number, count=100_000),
        position=piece.position,
        lapsed_ms=1_700_000_000_000,
        payload_bytes=2**40,
        pushed=10_000_000,
        fallback=max(Fallback, key=len),
    )


def test_a_task_keeps_its_hints_where_they_fit_and_drops_them_before_it_is_divided() -> None:
    def tasks_of(length: int) -> tuple[TaskPlan, ...]:
        states = [busy(n, 2, ranges=False, shard_id=f"shardId-{n:012}") for n in range(250)]
        return whole_plan(
            [one.shard_id for one in states],
            *states,
            max_tasks=1,
            ending_sequence={one.shard_id: SequenceNumber(10**56 - 1) for one in states},
            iterator={one.shard_id: "i" * length for one in states},
        ).tasks

    (kept,) = tasks_of(256)
    assert all(piece.iterator for piece in kept.shards)
    (dropped,) = tasks_of(2_000)
    assert not any(piece.iterator for piece in dropped.shards)


def range_of(first: int, count: int) -> UnresolvedRecord:
    return record(first, first + 5, count=count, attempts=0)


ALONE = queued("a", 1, 2, 3, 4)
OF_AN_OUTAGE = with_records(state("a"), record(1, 2_000, count=1_000, attempts=0))
TWO_RANGES = with_records(state("a"), range_of(0, 3), range_of(10, 3))


@pytest.mark.parametrize(
    ("of", "shards", "total", "planned", "new"),
    [
        (ALONE, ["b"], 1, [(1, 1)], 0),
        (ALONE, ["b"], 5, [(1, 1), (2, 1)], 3),
        (ALONE, ["b"], 10, [(1, 1), (2, 1), (3, 1), (4, 1)], 6),
        (ALONE, ["b"], None, [(1, 1), (2, 1), (3, 1), (4, 1)], 10_000),
        (ALONE, [], 3, [(1, 1), (2, 1), (3, 1)], 0),
        (OF_AN_OUTAGE, [], 100, [(1, 100)], 0),
        (OF_AN_OUTAGE, ["b"], 100, [(1, 50)], 50),
        (OF_AN_OUTAGE, ["b"], 1, [(1, 1)], 0),
        (OF_AN_OUTAGE, ["b"], 5_000, [(1, 1_000)], 4_000),
        (OF_AN_OUTAGE, [], None, [(1, 1_000)], 0),
        (TWO_RANGES, [], 3, [(0, 3)], 0),
        (TWO_RANGES, [], 4, [(0, 3), (10, 1)], 0),
        (TWO_RANGES, [], 9, [(0, 3), (10, 3)], 0),
    ],
)
def test_retries_count_against_a_triggers_limit_and_leave_half_of_it_to_new_records(
    of: ShardState, shards: list[str], total: int | None, planned: list[tuple[int, int]], new: int
) -> None:
    """A range is planned in part where it is larger; of a single record, all is read."""
    pieces = plan_of(shards, of, state("b"), max_records=total, most=10_000)
    retries = [each for piece in pieces for each in piece.retries]
    assert [(each.first.sequence, each.max_rows) for each in retries] == planned
    assert sum(piece.max_records for piece in pieces) == new
    for each in retries:
        assert (each.max_records is None) == (total is None or of is ALONE)
        (whole,) = (found for found in of.unresolved if found.first == each.first)
        assert (each.end, each.count) == (whole.last, whole.count), "not only of the part"


def test_of_retries_behind_one_that_has_no_room_in_its_task_none_is_planned() -> None:
    """They may wait for that one. A range takes the room of two."""
    ranges = (range_of(10 * n, 2) for n in range(1, 1_001))
    crowded = with_records(state("a"), record(0), *ranges, record(100_000))
    (piece,) = plan_of([], crowded)
    assert [one.first.sequence for one in piece.retries] == [0, *range(10, 10_000, 10)]
    (piece,) = plan_of([], queued("a", *range(2_001)))
    assert [one.first.sequence for one in piece.retries] == [*range(2_000)]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 14)), max_size=12),
    st.sampled_from([OnFailure.BLOCK_KEY, OnFailure.BLOCK_SHARD]),
    st.integers(1, 12),
)
def test_no_record_is_planned_without_those_that_it_waits_for_whatever_fits(
    made: list[tuple[str | None, int]], on_failure: OnFailure, limit: int
) -> None:
    records = [record(n, key=key, due_ms=due_ms) for n, (key, due_ms) in enumerate(made)]
    of = with_records(state("a"), *records)
    due = due_of(of, policy=OutcomePolicy(retry=RetryPolicy(), on_failure=on_failure))
    pieces = plan_of([], of, max_records=limit, retries=due, in_order=True)
    numbers = {one.first.sequence for piece in pieces for one in piece.retries}
    assert len(numbers) == min(limit, len(due))
    for number in numbers:
        for earlier in range(number):
            keys = {records[number].key, records[earlier].key}
            if on_failure is OnFailure.BLOCK_SHARD or None in keys or len(keys) == 1:
                assert earlier in numbers


def test_a_shard_that_is_proven_gone_is_planned_for_its_retries_without_a_question() -> None:
    pieces = {
        one.shard_id: one.gone
        for one in plan_of(["b"], queued("a", 1), queued("b", 2), gone=dict.fromkeys("abc", True))
    }
    assert pieces == {"a": True, "b": False}


def test_in_order_a_shards_retries_and_its_new_records_alternate_between_plans() -> None:
    """In one plan, new ones would overtake the retries for which the task had no room. Other shards
    are not concerned.
    """
    shards, states = ["a", "b"], (queued("a", 1), state("b"), queued("c", 2))
    odd, even = (
        {one.shard_id: one for one in plan_of(shards, *states, turn=turn, in_order=True)}
        for turn in (7, 8)
    )
    others = {"b": (0, 100), "c": (1, 0)}
    for plan, of_a in ((odd, (1, 0)), (even, (0, 100))):
        planned = {shard: (len(one.retries), one.max_records) for shard, one in plan.items()}
        assert planned == {"a": of_a, **others}


NOW_MS = 1_000


def policy(on_failure: OnFailure = OnFailure.CONTINUE, **retry: Any) -> OutcomePolicy:
    return OutcomePolicy(retry=RetryPolicy(**retry), on_failure=on_failure)


def states_of(**shards: list[UnresolvedRecord]) -> dict[str, ShardState]:
    """Shards without parents."""
    return {shard: with_records(state(shard), *records) for shard, records in shards.items()}


def queue_of(of: OutcomePolicy | None, **shards: list[UnresolvedRecord]) -> RetryQueue:
    queue = RetryQueue()
    queue.update(states_of(**shards), of, NOW_MS)
    return queue


def family(
    *of_ancestor: UnresolvedRecord, of_shard: tuple[UnresolvedRecord, ...] = ()
) -> dict[str, ShardState]:
    """A shard, its parent, where nothing is unresolved, and the parent of that."""
    return by_id(
        # The same tuple, which the queue takes for a state that was not written again.
        msgspec.structs.replace(state("s", "p"), unresolved=of_shard),
        state("p", "a", ended=True),
        with_records(state("a", ended=True), *of_ancestor),
    )


def due_numbers(queue: RetryQueue, now_ms: int = NOW_MS) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for shard_id, one in queue.due(now_ms):
        found.setdefault(shard_id, []).append(one.first.sequence)
    return found


def test_a_retry_is_planned_with_its_attempts_and_a_range_with_its_end_and_count() -> None:
    queue = queue_of(None, s=[record(3, attempts=2, whole=True), record(5, 9, count=4, attempts=0)])
    assert queue.due(NOW_MS) == [
        ("s", retry(3, attempts=2, whole=True)),
        ("s", retry(5, 9, count=4, attempts=0)),
    ]


@pytest.mark.parametrize(
    ("on_failure", "due"),
    [
        # without an order to keep: the first due one, of these the lower number, then the shard
        (OnFailure.CONTINUE, [("a", 4), ("b", 4), ("b", 1), ("a", 2), ("a", 3)]),
        # else the places of the shards' queues in turn
        (OnFailure.BLOCK_SHARD, [("b", 1), ("a", 2), ("a", 3), ("b", 4), ("a", 4)]),
    ],
)
def test_a_plan_takes_the_first_due_retries_first_or_the_first_places_of_all_shards(
    on_failure: OnFailure, due: list[tuple[str, int]]
) -> None:
    queue = queue_of(
        policy(on_failure),
        b=[record(1, due_ms=5), record(4, due_ms=1)],
        a=[record(2, due_ms=9), record(3, due_ms=9), record(4, due_ms=1)],
    )
    assert [(shard_id, one.first.sequence) for shard_id, one in queue.due(NOW_MS)] == due


def test_retries_of_a_shard_that_the_service_did_not_know_wait_until_it_is_asked_again() -> None:
    """What is left of the wait is forgotten when the clock is set back."""
    queue = queue_of(None, a=[record(1)], b=[record(2)])
    assert queue.is_due(0)
    queue.delay(["a"], NOW_MS + 5)
    queue.delay(["b"], NOW_MS + 9)
    assert queue.next_ms() == NOW_MS + 5
    assert (queue.is_due(NOW_MS + 4), queue.is_due(NOW_MS + 5)) == (False, True)
    assert due_numbers(queue, NOW_MS + 5) == {"a": [1]}
    queue.end_delay({"b"})
    assert due_numbers(queue) == {"b": [2]}
    family = states_of(a=[record(1)], b=[record(2)])
    queue.update(family, None, NOW_MS)
    assert due_numbers(queue) == {"b": [2]}
    queue.update(family, None, NOW_MS - 1)
    assert due_numbers(queue) == {"a": [1], "b": [2]}


def test_a_queue_counts_its_records_and_those_that_failed_themselves() -> None:
    failed = record(1, 3, first_failure_ms=7)
    queue = queue_of(None, a=[failed, record(5, blocked=True)], b=[record(9, first_failure_ms=4)])
    assert (queue.records(), queue.records_of("a"), queue.records_of("c")) == (5, 4, 0)
    assert (queue.waiting(), queue.oldest_failure_ms(), queue.is_empty()) == (4, 4, False)
    assert [queue.is_full("a", allowance) for allowance in (3, 4, 5)] == [True, True, False]
    assert not queue.is_full("c", 0)
    empty = queue_of(None, a=[])
    assert (empty.records(), empty.next_ms(), empty.oldest_failure_ms()) == (0, None, None)
    assert empty.is_empty() is True


def test_a_queue_follows_every_change_of_the_states_and_of_the_policy() -> None:
    """Also where an ancestor's records have changed alone; and a look at the same states again
    changes nothing.
    """
    queue, of = RetryQueue(), policy(KEY)
    of_shard = (record(10, key="a"), record(11, key="b"))
    before, after = (family(record(1, key=key), of_shard=of_shard) for key in "ab")
    for known, found in ((before, [11]), (before, [11]), (after, [10]), (before, [11])):
        queue.update(known, of, NOW_MS)
        assert due_numbers(queue) == {"a": [1], "s": found}
    fewer = family(record(1, key="a"), of_shard=of_shard[1:])
    queue.update(fewer, of, NOW_MS)
    assert due_numbers(queue) == {"a": [1], "s": [11]}
    queue.update(fewer, policy(SHARD), NOW_MS)
    assert due_numbers(queue) == {"a": [1]}
    queue = queue_of(None, a=[record(1)])
    queue.update(states_of(a=[record(2)]), None, NOW_MS)
    assert due_numbers(queue) == {"a": [2]}


def test_a_failure_of_a_clock_that_was_ahead_is_put_off_once() -> None:
    """Not again at each look at the same records, which would come before the retry each time."""
    failed = record(1, last_failure_ms=NOW_MS + 500, due_ms=NOW_MS + 510)
    queue = RetryQueue()
    for passed_ms in (0, 8):
        queue.update(states_of(a=[failed]), None, NOW_MS + passed_ms)
        assert queue.next_ms() == NOW_MS + 10


SHARD, KEY = OnFailure.BLOCK_SHARD, OnFailure.BLOCK_KEY
LATE, FAR = NOW_MS + 1, 10**9


@pytest.mark.parametrize(
    ("queued", "of", "is_exhausted"),
    [
        # one millisecond after its maximum age, and not before
        (record(1, first_failure_ms=399, due_ms=FAR), policy(max_age_ms=600), True),
        (record(1, first_failure_ms=400, due_ms=FAR), policy(max_age_ms=600), None),
        (record(1, first_failure_ms=399), policy(max_age_ms=600), True),
        # with more attempts than the limit, which was lowered since
        (record(1, attempts=4, due_ms=FAR), policy(retry_limit=3), True),
        (record(1, attempts=3), policy(retry_limit=3), False),
        # rejected by somebody who could not write its letter
        (record(1, rejected=True, due_ms=FAR), policy(), True),
        # before its first counted failure it does not age: in an outage it fails for long
        (record(1, attempts=0, first_failure_ms=0, due_ms=NOW_MS), policy(max_age_ms=10), False),
        (record(1, attempts=0, first_failure_ms=0, due_ms=LATE), policy(max_age_ms=10), None),
        # without a policy none is
        (record(1, attempts=99, first_failure_ms=0), None, False),
        (record(1, rejected=True), None, False),
        (record(1, due_ms=LATE), None, None),
    ],
)
def test_an_exhausted_record_is_due_at_once_and_flagged(
    queued: UnresolvedRecord, of: OutcomePolicy | None, *, is_exhausted: bool | None
) -> None:
    """None: it is not due."""
    due = queue_of(of, s=[queued]).due(NOW_MS)
    assert [one.exhausted for _, one in due] == ([] if is_exhausted is None else [is_exhausted])


def records_of(text: str) -> list[UnresolvedRecord]:
    """Like `1a 2-3+`: numbers, and their keys if they are known. + is due later, = just now."""
    due_ms = {"": 0, "=": NOW_MS, "+": LATE}
    found = [re.fullmatch(r"(\d+)(?:-(\d+))?([a-z]?)([+=]?)", word) for word in text.split()]
    return [
        record(int(one[1]), int(one[2] or one[1]), key=one[3] or None, due_ms=due_ms[one[4]])
        for one in found
        if one is not None
    ]


@pytest.mark.parametrize(
    ("on_failure", "records", "inherited", "due"),
    [
        # nothing is due behind the first record that is not
        (SHARD, "1 2 3+ 4", "", [1, 2]),
        # a record waits for an earlier one of its key only
        (KEY, "1a+ 2b 3a", "", [2]),
        # without a key it waits for all before it, and holds all behind it
        (KEY, "1a+ 2-3 4b", "", []),
        (KEY, "1a 2-3 4b", "", [1, 2, 4]),
        (KEY, "1a 2-3+ 4b", "", [1]),
        # without a blocking policy, only its own time counts; the order is the shard's
        (OnFailure.CONTINUE, "30 9 11+ 20=", "", [9, 20, 30]),
        # what an ancestor has not resolved comes before all of it
        (OnFailure.CONTINUE, "11", "1", [11]),
        (SHARD, "11", "1", []),
        (KEY, "11a 12b 13", "1a", [12]),
        (KEY, "11a 12-13", "1-2", []),
    ],
)
def test_a_record_waits_for_those_that_its_policy_keeps_it_behind(
    on_failure: OnFailure, records: str, inherited: str, due: list[int]
) -> None:
    times = due_times(records_of(records), policy(on_failure), records_of(inherited))
    assert [one.first.sequence for ready_ms, one in times if ready_ms <= NOW_MS] == due
    assert all(ready_ms <= LATE for ready_ms, _ in times)


# ancestors ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("on_failure", "of_ancestor", "found", "held"),
    [
        (OnFailure.CONTINUE, record(1, 9), [10, 11, 12], False),
        (OnFailure.BLOCK_KEY, record(1, key="a"), [11], False),
        (OnFailure.BLOCK_KEY, record(1, 9), [], True),
        (OnFailure.BLOCK_SHARD, record(1, key="a"), [], True),
    ],
    ids=["continue", "the same key", "a range, whose keys are not known", "the shard"],
)
def test_retries_and_new_records_wait_for_an_ancestors_unresolved_record_that_blocks_them(
    on_failure: OnFailure, of_ancestor: UnresolvedRecord, found: list[int], *, held: bool
) -> None:
    """However long ago they were due themselves. Once the ancestor's record is settled, they are.
    No new record of the shard is read while all of it is blocked.
    """
    of_shard = (record(10, key="a"), record(11, key="b"), record(12, key="a"))
    queue = RetryQueue()
    queue.update(family(of_ancestor, of_shard=of_shard), policy(on_failure), NOW_MS)
    ancestors = {"a": [of_ancestor.first.sequence]}
    assert due_numbers(queue, 10**15) == (ancestors | {"s": found} if found else ancestors)
    assert queue.is_full("p", 100) is held
    queue.update(family(of_shard=of_shard), policy(on_failure), NOW_MS)
    assert due_numbers(queue) == {"s": [10, 11, 12]}
    queue.update(family(), policy(on_failure), NOW_MS)
    assert not queue.is_full("s", 100)
