"""Which queued records of a shard are due, when, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_job.driver.retry_planner import DueRetry, due_retries, most_urgent, queued_retries
from state.plan import PlannedRetry
from state.report import OnFailure, OutcomePolicy
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord

NOW_MS = 1_000


def record(first: int, last: int | None = None, **rest: Any) -> UnresolvedRecord:
    last = first if last is None else last
    given = {"attempts": 1, "due_ms": 0, "count": last - first + 1} | rest
    return UnresolvedRecord(first=SequenceNumber(first), last=SequenceNumber(last), **given)


def policy(on_failure: OnFailure = OnFailure.CONTINUE, **retry: Any) -> OutcomePolicy:
    return OutcomePolicy(retry=RetryPolicy(**retry), on_failure=on_failure)


def test_a_retry_is_planned_with_its_attempts_and_a_range_with_its_end_and_count() -> None:
    queue = queued_retries(
        [record(3, attempts=2, whole=True), record(5, 9, count=4, attempts=0)], None
    )
    assert [one.retry for one in due_retries(queue, None, NOW_MS)] == [
        PlannedRetry(first=SequenceNumber(3), attempts=2, whole=True),
        PlannedRetry(first=SequenceNumber(5), last=SequenceNumber(9), count=4, attempts=0),
    ]


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
    due = due_retries(queued_retries([queued], of), of, NOW_MS)
    assert [one.retry.exhausted for one in due] == ([] if is_exhausted is None else [is_exhausted])


SHARD, KEY = OnFailure.BLOCK_SHARD, OnFailure.BLOCK_KEY


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
    of = policy(on_failure)
    queue = queued_retries(records, of, inherited)
    found = due_retries(queue, of, NOW_MS)
    assert [one.retry.first.sequence for one in found] == due
    in_order = on_failure is not OnFailure.CONTINUE
    times = [one.due_ms for one in sorted(records, key=lambda one: one.first)]
    own_ranks = [due_ms for due_ms in times if due_ms <= NOW_MS]
    assert [one.rank for one in found] == ([*range(len(due))] if in_order else own_ranks)
    assert all(one.ready_ms <= LATE for one in queue)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2_000)), max_size=12),
    st.sampled_from([OnFailure.BLOCK_KEY, OnFailure.BLOCK_SHARD]),
    st.integers(1, 12),
)
def test_no_record_is_chosen_without_those_that_it_waits_for_whatever_fits(
    made: list[tuple[str | None, int]], on_failure: OnFailure, entries: int
) -> None:
    records = [record(number, key=key, due_ms=due_ms) for number, (key, due_ms) in enumerate(made)]
    of = policy(on_failure)
    due = due_retries(queued_retries(records, of), of, NOW_MS)
    kept = most_urgent({"s": due}, entries=entries).get("s", [])
    numbers = {one.retry.first.sequence for one in kept}
    for number in numbers:
        for earlier in range(number):
            keys = {records[number].key, records[earlier].key}
            if on_failure is OnFailure.BLOCK_SHARD or None in keys or len(keys) == 1:
                assert earlier in numbers


# room in a plan -----------------------------------------------------------------------------------
def due(*ranks: int, count: int = 1) -> list[DueRetry]:
    def retry(number: int) -> PlannedRetry:
        last = None if count == 1 else SequenceNumber(number + 5)
        return PlannedRetry(first=SequenceNumber(number), last=last, count=count, attempts=1)

    return [DueRetry(rank, retry(10 * place)) for place, rank in enumerate(ranks)]


def firsts(kept: dict[str, list[DueRetry]]) -> dict[str, list[int]]:
    return {shard: [one.retry.first.sequence for one in retries] for shard, retries in kept.items()}


def test_without_room_for_all_the_first_due_are_chosen_and_each_shard_keeps_its_order() -> None:
    assert firsts(most_urgent({"a": due(9, 1, 5), "b": due(2, 8)}, entries=3)) == {
        "a": [10, 20],
        "b": [0],
    }


def test_of_equal_ranks_the_lower_number_is_chosen_and_then_the_first_shard() -> None:
    assert firsts(most_urgent({"a": due(9, 1), "b": due(1)}, entries=1)) == {"b": [0]}
    assert firsts(most_urgent({"b": due(1), "a": due(1)}, entries=1)) == {"a": [0]}


def test_a_range_takes_the_room_of_two_and_one_retry_is_always_chosen() -> None:
    assert firsts(most_urgent({"a": due(1, 2, count=3)}, entries=3)) == {"a": [0]}
    assert firsts(most_urgent({"a": due(1, count=3)}, entries=1)) == {"a": [0]}
    assert firsts(most_urgent({"a": due(1, 2, count=3)}, entries=4)) == {"a": [0, 10]}


@pytest.mark.parametrize(("records", "kept"), [(1, [0]), (3, [0]), (6, [0, 10]), (100, [0, 10])])
def test_records_of_ranges_count_against_a_limit_of_records(records: int, kept: list[int]) -> None:
    assert firsts(most_urgent({"a": due(1, 2, count=3)}, entries=100, records=records)) == {
        "a": kept
    }


def test_a_shard_without_a_chosen_retry_is_left_out() -> None:
    assert firsts(most_urgent({"a": due(9), "b": due(2)}, entries=1)) == {"b": [0]}
    assert most_urgent({}, entries=1) == {}
