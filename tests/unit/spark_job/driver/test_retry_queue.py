"""Which queued records are due, when, and in which order a plan takes them."""

from __future__ import annotations

from typing import Any

import pytest

from spark_job.driver.retry_queue import RetryQueue, due_times
from state.plan import PlannedRetry
from state.position import SHARD_END, TRIM_HORIZON
from state.report import OnFailure, OutcomePolicy
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord

NOW_MS = 1_000


def record(first: int, last: int | None = None, **rest: Any) -> UnresolvedRecord:
    last = first if last is None else last
    given = {"attempts": 1, "due_ms": 0, "count": last - first + 1} | rest
    return UnresolvedRecord(first=SequenceNumber(first), last=SequenceNumber(last), **given)


def policy(on_failure: OnFailure = OnFailure.CONTINUE, **retry: Any) -> OutcomePolicy:
    return OutcomePolicy(retry=RetryPolicy(**retry), on_failure=on_failure)


def states_of(**shards: list[UnresolvedRecord]) -> dict[str, ShardState]:
    """Shards without parents."""
    return {
        shard_id: ShardState(
            shard_id=shard_id, read_position=TRIM_HORIZON, unresolved=tuple(records)
        )
        for shard_id, records in shards.items()
    }


def queue_of(of: OutcomePolicy | None, **shards: list[UnresolvedRecord]) -> RetryQueue:
    queue = RetryQueue()
    queue.update(states_of(**shards), of, NOW_MS)
    return queue


def states(
    *of_ancestor: UnresolvedRecord, of_shard: tuple[UnresolvedRecord, ...] = ()
) -> dict[str, ShardState]:
    """A shard, its parent, where nothing is unresolved, and the parent of that."""
    return {
        "s": ShardState(
            shard_id="s", read_position=TRIM_HORIZON, parents=("p",), unresolved=of_shard
        ),
        "p": ShardState(shard_id="p", read_position=SHARD_END, parents=("a",)),
        "a": ShardState(shard_id="a", read_position=SHARD_END, unresolved=of_ancestor),
    }


def due_numbers(queue: RetryQueue, now_ms: int = NOW_MS) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for shard_id, one in queue.due(now_ms):
        found.setdefault(shard_id, []).append(one.first.sequence)
    return found


def test_a_retry_is_planned_with_its_attempts_and_a_range_with_its_end_and_count() -> None:
    queue = queue_of(None, s=[record(3, attempts=2, whole=True), record(5, 9, count=4, attempts=0)])
    assert queue.due(NOW_MS) == [
        ("s", PlannedRetry(first=SequenceNumber(3), attempts=2, whole=True)),
        ("s", PlannedRetry(first=SequenceNumber(5), last=SequenceNumber(9), count=4, attempts=0)),
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
    states = states_of(a=[record(1)], b=[record(2)])
    queue.update(states, None, NOW_MS)
    assert due_numbers(queue) == {"b": [2]}
    queue.update(states, None, NOW_MS - 1)
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
    before, after = (states(record(1, key=key), of_shard=of_shard) for key in "ab")
    for given, found in ((before, [11]), (before, [11]), (after, [10]), (before, [11])):
        queue.update(given, of, NOW_MS)
        assert due_numbers(queue) == {"a": [1], "s": found}
    fewer = states(record(1, key="a"), of_shard=of_shard[1:])
    queue.update(fewer, of, NOW_MS)
    assert due_numbers(queue) == {"a": [1], "s": [11]}
    queue.update(fewer, policy(SHARD), NOW_MS)
    assert due_numbers(queue) == {"a": [1]}
    queue = queue_of(None, a=[record(1)])
    queue.update(states_of(a=[record(2)]), None, NOW_MS)
    assert due_numbers(queue) == {"a": [2]}


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


@pytest.mark.parametrize(
    ("on_failure", "records", "inherited", "due"),
    [
        # nothing is due behind the first record that is not
        (
            SHARD,
            [record(1), record(2, blocked=True), record(3, due_ms=LATE), record(4)],
            [],
            [1, 2],
        ),
        # a record waits for an earlier one of its key only
        (
            KEY,
            [record(1, key="a", due_ms=LATE), record(2, key="b"), record(3, key="a")],
            [],
            [2],
        ),
        # without a key it waits for all before it, and holds all behind it
        (KEY, [record(1, key="a", due_ms=LATE), record(2, 3), record(4, key="b")], [], []),
        (KEY, [record(1, key="a"), record(2, 3), record(4, key="b")], [], [1, 2, 4]),
        (KEY, [record(1, key="a"), record(2, 3, due_ms=LATE), record(4, key="b")], [], [1]),
        # what an ancestor has not resolved comes before all of it
        (OnFailure.CONTINUE, [record(11)], [record(1)], [11]),
        # without a blocking policy, only its own time counts; the order is the shard's
        (
            OnFailure.CONTINUE,
            [record(30), record(9), record(11, due_ms=LATE), record(20, due_ms=NOW_MS)],
            [],
            [9, 20, 30],
        ),
        (SHARD, [record(11)], [record(1)], []),
        (KEY, [record(11, key="a"), record(12, key="b"), record(13)], [record(1, key="a")], [12]),
        (KEY, [record(11, key="a"), record(12, 13)], [record(1, 2)], []),
    ],
)
def test_a_record_waits_for_those_that_its_policy_keeps_it_behind(
    on_failure: OnFailure,
    records: list[UnresolvedRecord],
    inherited: list[UnresolvedRecord],
    due: list[int],
) -> None:
    times = due_times(records, policy(on_failure), inherited)
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
    queue.update(states(of_ancestor, of_shard=of_shard), policy(on_failure), NOW_MS)
    ancestors = {"a": [of_ancestor.first.sequence]}
    assert due_numbers(queue, 10**15) == (ancestors | {"s": found} if found else ancestors)
    assert queue.is_full("p", 100) is held
    queue.update(states(of_shard=of_shard), policy(on_failure), NOW_MS)
    assert due_numbers(queue) == {"s": [10, 11, 12]}
    queue.update(states(), policy(on_failure), NOW_MS)
    assert not queue.is_full("s", 100)
