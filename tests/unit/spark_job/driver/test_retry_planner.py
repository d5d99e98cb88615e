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


def chosen(*records: UnresolvedRecord, of: OutcomePolicy | None = None) -> list[int]:
    """First sequence numbers of the retries that are due now."""
    return [
        one.retry.first.sequence for one in due_retries(queued_retries(records, of), of, NOW_MS)
    ]


def test_due_retries_come_in_the_order_of_their_sequence_numbers() -> None:
    assert chosen(
        record(30),
        record(9),
        record(100, due_ms=NOW_MS + 1),
        record(20, due_ms=NOW_MS),
        of=policy(),
    ) == [9, 20, 30]


def test_a_retry_is_planned_with_its_attempts_and_a_range_with_its_end_and_count() -> None:
    queue = queued_retries(
        [record(3, attempts=2, whole=True), record(5, 9, count=4, attempts=0)], None
    )
    assert [one.retry for one in due_retries(queue, None, NOW_MS)] == [
        PlannedRetry(first=SequenceNumber(3), attempts=2, whole=True),
        PlannedRetry(first=SequenceNumber(5), last=SequenceNumber(9), count=4, attempts=0),
    ]


def exhausted(*records: UnresolvedRecord, of: OutcomePolicy | None) -> dict[int, bool]:
    return {
        one.retry.first.sequence: one.retry.exhausted
        for one in due_retries(queued_retries(records, of), of, NOW_MS)
    }


def test_an_exhausted_record_is_due_at_once_and_flagged() -> None:
    """Too old, with more attempts than a limit that was lowered since, or rejected by somebody who
    could not write its letter.
    """
    old = record(1, first_failure_ms=0, due_ms=10**9)
    young = record(2, first_failure_ms=NOW_MS - 500, due_ms=10**9)
    tried = record(3, attempts=4, due_ms=10**9)
    waiting = record(4, attempts=3, first_failure_ms=NOW_MS, due_ms=0)
    rejected = record(5, attempts=1, due_ms=10**9, rejected=True)
    found = exhausted(
        old, young, tried, waiting, rejected, of=policy(retry_limit=3, max_age_ms=500)
    )
    assert found == {1: True, 3: True, 4: False, 5: True}


def test_a_record_is_exhausted_one_millisecond_after_its_maximum_age_and_not_before() -> None:
    too_old, old = (
        record(1, first_failure_ms=399, due_ms=10**9),
        record(2, first_failure_ms=400, due_ms=10**9),
    )
    assert exhausted(too_old, old, of=policy(max_age_ms=600)) == {1: True}


def test_a_record_does_not_age_before_its_first_counted_failure() -> None:
    """In an outage it fails for long, and must not be exhausted by it."""
    in_outage = record(1, attempts=0, first_failure_ms=0, due_ms=NOW_MS)
    assert exhausted(in_outage, of=policy(max_age_ms=10)) == {1: False}
    later = record(1, attempts=0, first_failure_ms=0, due_ms=NOW_MS + 1)
    assert exhausted(later, of=policy(max_age_ms=10)) == {}


def test_without_a_policy_nothing_is_ever_exhausted() -> None:
    assert exhausted(
        record(1, attempts=99, first_failure_ms=0), record(2, due_ms=NOW_MS + 1), of=None
    ) == {1: False}


def test_with_block_shard_nothing_is_due_behind_the_first_record_that_is_not() -> None:
    records = (
        record(1),
        record(2, blocked=True),
        record(3, due_ms=NOW_MS + 1),
        record(4),
        record(5),
    )
    assert chosen(*records, of=policy(OnFailure.BLOCK_SHARD)) == [1, 2]


def test_with_block_key_a_record_waits_for_an_earlier_one_of_its_key_only() -> None:
    records = (
        record(1, key="a", due_ms=NOW_MS + 1),
        record(2, key="b"),
        record(3, key="a"),
        record(4, key="b"),
    )
    assert chosen(*records, of=policy(OnFailure.BLOCK_KEY)) == [2, 4]


def test_with_block_key_a_record_without_a_key_waits_for_all_before_and_blocks_all_behind() -> None:
    waiting = record(1, key="a", due_ms=NOW_MS + 1)
    assert chosen(waiting, record(2, 3), record(4, key="b"), of=policy(OnFailure.BLOCK_KEY)) == []
    assert chosen(
        record(1, key="a"), record(2, 3), record(4, key="b"), of=policy(OnFailure.BLOCK_KEY)
    ) == [1, 2, 4]
    held = record(2, 3, due_ms=NOW_MS + 1)
    assert chosen(record(1, key="a"), held, record(4, key="b"), of=policy(OnFailure.BLOCK_KEY)) == [
        1
    ]


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


def test_a_range_takes_the_room_of_two_and_one_retry_is_always_chosen() -> None:
    assert firsts(most_urgent({"a": due(1, 2, count=3)}, entries=3)) == {"a": [0]}
    assert firsts(most_urgent({"a": due(1, count=3)}, entries=1)) == {"a": [0]}


@pytest.mark.parametrize(("records", "kept"), [(1, [0]), (3, [0]), (6, [0, 10]), (100, [0, 10])])
def test_records_of_ranges_count_against_a_limit_of_records(records: int, kept: list[int]) -> None:
    assert firsts(most_urgent({"a": due(1, 2, count=3)}, entries=100, records=records)) == {
        "a": kept
    }


def test_a_shard_without_a_chosen_retry_is_left_out() -> None:
    assert firsts(most_urgent({"a": due(9), "b": due(2)}, entries=1)) == {"b": [0]}
    assert most_urgent({}, entries=1) == {}
