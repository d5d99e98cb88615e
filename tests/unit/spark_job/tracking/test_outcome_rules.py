"""Decisions on failed records: each rule by itself, and properties of all decisions."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_job.tracking.outcome_rules import (
    BatchContext,
    BatchOutcomes,
    LetterNote,
    decide,
    first_tries,
)
from spark_job.tracking.outcomes import FailedRecord, Outcome
from state.plan import PlannedRetry, RangePart, ShardReadResult, ShardSlice, ShortRange
from state.position import Position
from state.report import OnFailure, OutcomePolicy
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW_MS = 1_000_000
EXACT = RetryPolicy(retry_limit=2, first_delay_ms=1_000, jitter=0.0, max_age_ms=100_000)


def failed(
    number: int,
    outcome: Outcome = Outcome.RETRY,
    *,
    attempt: int = 1,
    shard: str = "s",
    **more: Any,
) -> FailedRecord:
    return FailedRecord(
        message_id=f"{shard}:{number}:{attempt}",
        shard_id=shard,
        sequence=SequenceNumber(number),
        attempt=attempt,
        outcome=outcome,
        reason=more.pop("reason", "why"),
        **more,
    )


def unresolved(first: int, last: int | None = None, **more: Any) -> UnresolvedRecord:
    values: dict[str, Any] = {
        "attempts": 1,
        "due_ms": 5,
        "count": 1 if last is None else last - first + 1,
    } | more
    return UnresolvedRecord(
        first=SequenceNumber(first), last=SequenceNumber(last or first), **values
    )


def context(
    *known: UnresolvedRecord,
    retry: RetryPolicy = EXACT,
    on_failure: OnFailure = OnFailure.CONTINUE,
    **more: Any,
) -> BatchContext:
    position = Position.after(SequenceNumber(0))
    values: dict[str, Any] = {
        "policy": OutcomePolicy(retry=retry, on_failure=on_failure),
        "slices": {},
        "ends": {},
        "states": {"s": ShardState(shard_id="s", read_position=position, unresolved=known)}
        if known
        else {},
        "records": 1_000,
        "outages": 0,
        "first_tries": 1_000,
        "succeeded_ms": None,
        "now_ms": NOW_MS,
        "random": Random(1),  # noqa: S311  # a test draws the same
    }
    return BatchContext(**(values | more))


def queued(outcomes: BatchOutcomes) -> Sequence[UnresolvedRecord]:
    return [row for shard in outcomes.report.shards for row in shard.unresolved]


def test_a_failed_record_is_queued_with_one_more_attempt_and_its_backoff() -> None:
    (row,) = queued(
        decide(
            [failed(7, attempt=2)], context(unresolved(7, first_failure_ms=NOW_MS - 10, attempts=1))
        )
    )
    assert (row.attempts, row.due_ms, row.first_failure_ms, row.last_failure_ms) == (
        2,
        NOW_MS + 2_000,
        NOW_MS - 10,
        NOW_MS,
    )
    assert (row.reason, row.key, row.blocked, row.count) == ("why", None, False, 1)


def test_a_record_is_due_after_the_delay_that_its_function_asked_for() -> None:
    (row,) = queued(decide([failed(7, after_s=60.5)], context()))
    assert row.due_ms == NOW_MS + 60_500


@pytest.mark.parametrize(
    ("limit", "attempt", "is_letter"),
    [(0, 1, True), (1, 1, False), (1, 2, True), (3, 3, False), (3, 4, True)],
)
def test_a_record_is_exhausted_when_it_failed_more_often_than_the_limit(
    limit: int, attempt: int, *, is_letter: bool
) -> None:
    """So a limit of 3 allows 4 deliveries, and a limit of 0 allows only the first one."""
    outcomes = decide([failed(7, attempt=attempt)], context(retry=RetryPolicy(retry_limit=limit)))
    assert (len(outcomes.letters), len(queued(outcomes))) == ((1, 0) if is_letter else (0, 1))
    assert outcomes.report.exhausted == int(is_letter)


def test_a_record_older_than_the_maximum_age_is_exhausted() -> None:
    old = unresolved(7, first_failure_ms=NOW_MS - 100_001)
    (letter,) = decide([failed(7, attempt=2)], context(old)).letters
    assert letter == LetterNote(
        message_id="s:7:2",
        attempts=2,
        first_failure_ms=NOW_MS - 100_001,
        last_failure_ms=NOW_MS,
        reason="why",
    )
    young = unresolved(7, first_failure_ms=NOW_MS - 100_000)
    assert not decide([failed(7, attempt=2)], context(young)).letters


@pytest.mark.parametrize("whole", [True, False])
def test_a_letter_says_whether_its_record_was_delivered_whole(*, whole: bool) -> None:
    """A new record by the option of its plan, a retry as it failed, whatever the option is."""
    known = unresolved(7, attempts=3, whole=not whole)
    records = [
        failed(7, Outcome.REJECT, attempt=4),
        failed(8, Outcome.REJECT),
        failed(9, Outcome.EXHAUSTED),
    ]
    letters = decide(records, context(known, whole=whole)).letters
    assert [letter.whole for letter in letters] == [not whole, whole, whole]


def test_a_rejected_record_is_a_letter_at_once_and_does_not_count_as_exhausted() -> None:
    outcomes = decide([failed(7, Outcome.REJECT)], context())
    assert [letter.attempts for letter in outcomes.letters] == [1]
    assert (outcomes.report.failed, outcomes.report.exhausted, outcomes.report.retried) == (1, 0, 0)


def test_a_record_flagged_as_exhausted_keeps_its_attempts_and_its_last_failure() -> None:
    """It was delivered only to write its letter."""
    known = unresolved(7, attempts=3, first_failure_ms=1, last_failure_ms=2, reason="as before")
    outcomes = decide([failed(7, Outcome.EXHAUSTED, attempt=4, reason=None)], context(known))
    assert outcomes.letters == (
        LetterNote(
            message_id="s:7:4",
            attempts=3,
            first_failure_ms=1,
            last_failure_ms=2,
            reason="as before",
        ),
    )
    assert (outcomes.report.failed, outcomes.report.exhausted) == (0, 1)


def test_a_planned_retry_that_is_gone_is_a_letter_with_its_last_failure() -> None:
    known = unresolved(7, attempts=2, first_failure_ms=1, last_failure_ms=2, reason="as before")
    retry = PlannedRetry(first=SequenceNumber(7), attempts=2)
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(9)), max_records=1, retries=(retry,)
    )
    end = ShardReadResult(shard_id="s", retries_done=1, retries_gone=(SequenceNumber(7),))
    outcomes = decide([], context(known, slices={"s": one}, ends={"s": end}))
    assert outcomes.letters == (
        LetterNote(
            message_id="s:7:3",
            attempts=2,
            first_failure_ms=1,
            last_failure_ms=2,
            reason="past the stream's retention; last failure: as before",
            gone=("s", "7"),
        ),
    )
    assert outcomes.report.exhausted == 1


def test_the_letter_of_a_user_record_that_is_gone_names_it() -> None:
    """Not the first one of its aggregate, whose letter it would be taken for."""
    third = SequenceNumber(7, 2)
    one = ShardSlice(
        shard_id="s",
        position=Position.after(SequenceNumber(9)),
        max_records=1,
        retries=(PlannedRetry(first=third, attempts=2),),
    )
    end = ShardReadResult(shard_id="s", retries_done=1, retries_gone=(third,))
    (letter,) = decide([], context(slices={"s": one}, ends={"s": end})).letters
    assert (letter.message_id, letter.gone) == ("s:7.2:3", ("s", "7.2"))


def range_outcomes(**result: Any) -> BatchOutcomes:
    """The outcomes of a batch whose plan had one range of four records."""
    known = unresolved(7, 30, count=4, attempts=2, reason="as before")
    retry = PlannedRetry(
        first=SequenceNumber(7), last=SequenceNumber(30), count=4, attempts=2, max_records=3
    )
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(30)), max_records=1, retries=(retry,)
    )
    end = ShardReadResult(shard_id="s", **result)
    return decide([], context(known, slices={"s": one}, ends={"s": end}))


def test_a_range_that_is_gone_is_one_letter_that_counts_its_records() -> None:
    outcomes = range_outcomes(retries_done=1, retries_gone=(SequenceNumber(7),))
    (letter,) = outcomes.letters
    assert (letter.message_id, letter.gone, letter.records) == ("s:7:3", ("s", "7"), 4)
    assert letter.reason == (
        "4 records up to 30 are past the stream's retention; last failure: as before"
    )
    assert outcomes.report.exhausted == 4


@pytest.mark.parametrize(
    "part",
    [
        {"retries_done": 1},
        {"retry_part": RangePart(last=SequenceNumber(9), rest=SequenceNumber(10), count=1)},
    ],
    ids=["whole", "in-part"],
)
def test_a_range_that_is_partly_past_the_retention_is_one_letter_that_counts_what_is_missing(
    part: dict[str, Any],
) -> None:
    """Numbers inside a range are not stored, so the letter names the first one."""
    short = ShortRange(first=SequenceNumber(7), missing=3)
    outcomes = range_outcomes(**part, retry_rows=1, retries_short=(short,))
    (letter,) = outcomes.letters
    assert letter == LetterNote(
        message_id="s:7:3",
        attempts=2,
        first_failure_ms=None,
        last_failure_ms=None,
        reason="3 of 4 records up to 30 are past the stream's retention; last failure: as before",
        gone=("s", "7"),
        records=3,
    )
    assert outcomes.report.exhausted == 3


def test_a_blocked_record_keeps_its_attempts_and_is_due_at_once() -> None:
    known = unresolved(7, attempts=1, first_failure_ms=1, last_failure_ms=2, reason="as before")
    (row,) = queued(
        decide(
            [failed(7, Outcome.BLOCKED, attempt=2, reason=None, key="k")],
            context(known, on_failure=OnFailure.BLOCK_KEY),
        )
    )
    assert (row.attempts, row.due_ms, row.reason, row.key, row.blocked) == (
        1,
        0,
        "as before",
        "k",
        True,
    )


def test_keys_are_stored_only_where_they_block() -> None:
    (row,) = queued(decide([failed(7, key="k")], context()))
    assert row.key is None
    (row,) = queued(decide([failed(7, key="k")], context(on_failure=OnFailure.BLOCK_KEY)))
    assert row.key == "k"


def test_a_record_ages_from_its_first_counted_failure() -> None:
    """It has failed for long without one: the sink was down, perhaps."""
    known = unresolved(7, attempts=0, first_failure_ms=NOW_MS - 100_001)
    (row,) = queued(decide([failed(7)], context(known)))
    assert (row.attempts, row.first_failure_ms) == (1, NOW_MS)
    (letter,) = decide([failed(7, Outcome.REJECT)], context(known)).letters
    assert letter.first_failure_ms == NOW_MS
    retry = PlannedRetry(first=SequenceNumber(7), attempts=0)
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(9)), max_records=1, retries=(retry,)
    )
    end = ShardReadResult(shard_id="s", retries_done=1, retries_gone=(SequenceNumber(7),))
    (letter,) = decide([], context(known, slices={"s": one}, ends={"s": end})).letters
    assert letter.first_failure_ms is None


def test_a_failure_together_with_other_records_does_not_count_as_an_attempt() -> None:
    (row,) = queued(
        decide(
            [failed(7, Outcome.UNCOUNTED, attempt=1)],
            context(retry=RetryPolicy(retry_limit=0, jitter=0.0)),
        )
    )
    assert (row.attempts, row.due_ms, row.first_failure_ms) == (0, NOW_MS + 1_000, NOW_MS)


@pytest.mark.parametrize(
    ("failed_ms", "succeeded_ms", "attempts"),
    [
        (None, NOW_MS - 5, 0),
        (NOW_MS - 10, None, 0),
        (NOW_MS - 10, NOW_MS - 20, 0),
        (NOW_MS - 10, NOW_MS - 5, 1),
    ],
    ids=[
        "first failure",
        "nothing succeeded in this run",
        "nothing succeeded since",
        "another one succeeded since",
    ],
)
def test_a_record_that_fails_alone_counts_as_bad_once_another_record_has_succeeded(
    failed_ms: int | None, succeeded_ms: int | None, attempts: int
) -> None:
    """Until then the sink may be down."""
    known = [] if failed_ms is None else [unresolved(7, attempts=0, last_failure_ms=failed_ms)]
    (row,) = queued(decide([failed(7, Outcome.ALONE)], context(*known, succeeded_ms=succeeded_ms)))
    assert row.attempts == attempts


@pytest.mark.parametrize(
    ("count", "tried", "outage"),
    [(100, 199, True), (100, 200, False), (99, 99, False), (150, 200, True)],
)
def test_an_outage_is_more_than_half_and_at_least_a_hundred(
    count: int, tried: int, *, outage: bool
) -> None:
    outcomes = decide([failed(n) for n in range(1, count + 1)], context(first_tries=tried))
    assert outcomes.report.outage is outage


# few records --------------------------------------------------------------------------------------
SUSPECTS = (Outcome.RETRY, Outcome.ALONE)


def planned(*firsts: int) -> dict[str, Any]:
    """The slice and the end of shard s, of which these retries were read."""
    retries = tuple(PlannedRetry(first=SequenceNumber(first), attempts=0) for first in firsts)
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(99)), max_records=9, retries=retries
    )
    return {
        "slices": {"s": one},
        "ends": {"s": ShardReadResult(shard_id="s", retries_done=len(retries))},
    }


@pytest.mark.parametrize(
    ("count", "records", "outage"),
    [(10, 10, True), (10, 11, False), (9, 9, False), (99, 99, True), (99, 100, False)],
)
def test_an_outage_of_a_few_records_is_one_in_which_ten_fail_and_nothing_succeeds(
    count: int, records: int, *, outage: bool
) -> None:
    outcomes = decide(
        [failed(n) for n in range(1, count + 1)], context(records=records, first_tries=records)
    )
    assert outcomes.report.outage is outage
    assert {row.attempts for row in queued(outcomes)} == ({0} if outage or count == 9 else {1})


@pytest.mark.parametrize(
    ("waiting", "outage"),
    [
        ([unresolved(n, attempts=0, last_failure_ms=1) for n in range(1, 10)], True),
        ([unresolved(1, 9, attempts=0, last_failure_ms=1)], True),
        ([unresolved(1, 8, attempts=0, last_failure_ms=1)], False),
        ([unresolved(1, 9, attempts=1, last_failure_ms=1)], False),
        ([unresolved(1, 9, attempts=0, last_failure_ms=1, blocked=True)], False),
        ([unresolved(1, 9, attempts=0, last_failure_ms=1, rejected=True)], False),
        ([unresolved(1, 9, attempts=0)], False),
    ],
    ids=["nine", "a range", "eight", "counted", "blocked", "rejected", "never tried"],
)
def test_records_that_failed_without_a_counted_failure_in_earlier_batches_are_evidence_too(
    waiting: list[UnresolvedRecord], *, outage: bool
) -> None:
    """With batches of one record, an outage would never show in one of them."""
    outcomes = decide([failed(50)], context(*waiting, records=1, first_tries=1))
    assert outcomes.report.outage is outage
    assert [row.attempts for row in queued(outcomes)] == [0]


@pytest.mark.parametrize(("age_ms", "outage"), [(299_999, True), (300_000, False)])
def test_an_outage_of_a_few_records_lasts_for_five_minutes_at_most(
    age_ms: int, *, outage: bool
) -> None:
    """Bad records alone must not hold up for ever what comes after them."""
    first_ms = NOW_MS - age_ms
    waiting = [
        unresolved(n, attempts=0, first_failure_ms=first_ms, last_failure_ms=1)
        for n in range(1, 13)
    ]
    records = [failed(n) for n in range(1, 13)]
    outcomes = decide(records, context(*waiting, records=12, **planned(*range(1, 13))))
    assert outcomes.report.outage is outage
    assert {row.attempts for row in queued(outcomes)} == {0 if outage else 1}


def test_a_queued_record_that_is_in_the_batch_is_counted_once() -> None:
    waiting = [unresolved(n, attempts=0, last_failure_ms=1) for n in range(1, 10)]
    records = [failed(n) for n in range(1, 10)]
    outcomes = decide(records, context(*waiting, records=9, **planned(*range(1, 10))))
    assert not outcomes.report.outage


@pytest.mark.parametrize("outcome", SUSPECTS)
def test_a_lone_failure_does_not_count_and_is_retried_at_growing_distances(
    outcome: Outcome,
) -> None:
    """Whatever the limit is: what it is written to may be down."""
    age_ms, known, ages = 0, list[UnresolvedRecord](), list[int]()
    retry = RetryPolicy(retry_limit=0, first_delay_ms=1_000, jitter=0.0)
    while len(ages) <= 6:
        outcomes = decide(
            [failed(7, outcome)], context(*known, records=1, retry=retry, now_ms=NOW_MS + age_ms)
        )
        if outcomes.letters:
            break
        ages.append(age_ms)
        known = list(queued(outcomes))
        assert (known[0].attempts, known[0].first_failure_ms) == (0, NOW_MS)
        age_ms = known[0].due_ms - NOW_MS
    assert ages == [0, 1_000, 2_000, 4_000, 8_000, 16_000]
    assert age_ms == 32_000
    assert outcomes.letters[0].first_failure_ms == NOW_MS + 32_000


@pytest.mark.parametrize("outcome", SUSPECTS)
@pytest.mark.parametrize(
    ("first_ms", "attempts"), [(NOW_MS - 19_999, 0), (NOW_MS - 20_000, 1), (NOW_MS + 5, 0)]
)
def test_the_failures_of_a_few_records_count_twenty_seconds_after_the_first(
    outcome: Outcome, first_ms: int, attempts: int
) -> None:
    known = unresolved(7, attempts=0, first_failure_ms=first_ms, last_failure_ms=NOW_MS - 1)
    (row,) = queued(decide([failed(7, outcome)], context(known, records=1)))
    assert row.attempts == attempts
    assert row.due_ms >= NOW_MS + 1_000


@pytest.mark.parametrize("outcome", SUSPECTS)
def test_a_record_with_a_counted_failure_is_bad_also_where_nothing_else_succeeds(
    outcome: Outcome,
) -> None:
    """It failed while others succeeded, so its retries, which come alone, run as usual."""
    known = unresolved(7, attempts=1, first_failure_ms=NOW_MS - 1, last_failure_ms=NOW_MS - 1)
    (row,) = queued(decide([failed(7, outcome, attempt=2)], context(known, records=1)))
    assert (row.attempts, row.due_ms) == (2, NOW_MS + 2_000)


def test_a_success_in_the_batch_makes_its_failures_count() -> None:
    """More than half of a few: the function works, and these records are bad."""
    outcomes = decide([failed(n) for n in range(1, 100)], context(records=100, first_tries=100))
    assert {row.attempts for row in queued(outcomes)} == {1}


def test_rejected_records_are_no_evidence_that_the_sink_works() -> None:
    records = [failed(1), failed(2, Outcome.REJECT), failed(3, Outcome.BLOCKED)]
    outcomes = decide(records, context(records=3))
    assert [row.attempts for row in queued(outcomes)] == [0, 0]
    assert len(outcomes.letters) == 1


def test_a_suspected_failure_keeps_the_delay_that_its_function_asked_for() -> None:
    (row,) = queued(decide([failed(7, after_s=60.5)], context(records=1)))
    assert (row.attempts, row.due_ms) == (0, NOW_MS + 60_500)


def test_a_long_first_delay_is_kept_by_suspected_failures() -> None:
    retry = RetryPolicy(first_delay_ms=300_000, jitter=0.0)
    (row,) = queued(decide([failed(7)], context(records=1, retry=retry)))
    assert (row.attempts, row.due_ms) == (0, NOW_MS + 300_000)


def test_rejected_records_are_not_an_outage() -> None:
    outcomes = decide([failed(n, Outcome.REJECT) for n in range(1, 200)], context(first_tries=200))
    assert not outcomes.report.outage
    assert len(outcomes.letters) == 199


def test_in_an_outage_attempts_and_age_do_not_count_and_neighbours_are_one_range() -> None:
    """A range ends at a record that did not fail, and at the end of its shard."""
    records = [failed(10 * n, ordinal=n) for n in range(1, 151) if n != 50]
    records += [failed(10 * n, ordinal=n, shard="t") for n in range(1, 3)]
    outcomes = decide(records, context(retry=RetryPolicy(retry_limit=0), first_tries=160))
    rows = [
        (int(str(row.first)), int(str(row.last)), row.count, row.attempts, row.first_failure_ms)
        for row in queued(outcomes)
    ]
    assert rows == [(10, 490, 49, 0, NOW_MS), (510, 1500, 100, 0, NOW_MS), (10, 20, 2, 0, NOW_MS)]
    assert outcomes.letters == ()
    assert outcomes.report.retried == 151


@pytest.mark.parametrize(
    ("outages", "delay_ms"), [(0, 1_000), (1, 2_000), (5, 32_000), (6, 60_000), (10_000, 60_000)]
)
def test_outages_back_off_to_a_minute(outages: int, delay_ms: int) -> None:
    outcomes = decide(
        [failed(n, ordinal=n) for n in range(1, 201)], context(outages=outages, first_tries=200)
    )
    assert {row.due_ms for row in queued(outcomes)} == {NOW_MS + delay_ms}


def test_records_without_an_ordinal_are_not_merged_in_an_outage() -> None:
    outcomes = decide([failed(n) for n in range(1, 201)], context(first_tries=200))
    assert len(queued(outcomes)) == 200


def test_records_with_different_attempts_are_not_merged_in_an_outage() -> None:
    """A range has one count of attempts: with the lowest, the other records are tried too often."""
    outcomes = decide(
        [failed(n, ordinal=n, attempt=1 + n % 2) for n in range(1, 401)], context(first_tries=200)
    )
    assert outcomes.report.outage
    assert len(queued(outcomes)) == 400


def test_retries_that_all_fail_again_are_not_an_outage() -> None:
    """On a quiet stream all records of a batch may be bad. Counted as an outage, they would be
    retried for ever.
    """
    outcomes = decide([failed(n, attempt=2) for n in range(1, 501)], context(first_tries=0))
    assert not outcomes.report.outage
    assert {row.attempts for row in queued(outcomes)} == {2}


def test_in_an_outage_the_attempts_of_retries_do_not_count_either() -> None:
    records = [failed(n, ordinal=n) for n in range(100, 300)] + [
        failed(n, ordinal=n, attempt=3) for n in range(1, 4)
    ]
    outcomes = decide(records, context(first_tries=210))
    assert outcomes.report.outage
    assert outcomes.letters == ()
    assert {row.attempts for row in queued(outcomes)} == {0, 2}


def test_first_tries_are_new_records_and_records_that_an_outage_has_queued() -> None:
    """Not records with a counted failure, records that are gone, retries that were not read yet,
    and withheld records.
    """

    def retry(first: int, attempts: int, count: int = 1) -> PlannedRetry:
        return PlannedRetry(first=SequenceNumber(first), attempts=attempts, count=count)

    retries = (retry(1, 0, 50), retry(60, 1), retry(61, 0), retry(62, 0), retry(63, 0))
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(99)), max_records=1, retries=retries
    )
    end = ShardReadResult(shard_id="s", count=7, retries_done=4, retries_gone=(SequenceNumber(61),))
    withheld = [failed(62, Outcome.BLOCKED), failed(60, Outcome.EXHAUSTED, attempt=2), failed(100)]
    assert first_tries([one], [end], withheld) == 7 + 50 + 1 - 1


def test_of_a_range_that_is_short_or_read_in_part_the_records_that_were_read_are_first_tries() -> (
    None
):
    retries = tuple(
        PlannedRetry(first=SequenceNumber(n), last=SequenceNumber(n + 9), count=10, attempts=0)
        for n in (10, 20, 30)
    )
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(99)), max_records=0, retries=retries
    )
    end = ShardReadResult(
        shard_id="s",
        retries_done=1,
        retry_rows=11,
        retries_short=(ShortRange(first=SequenceNumber(10), missing=3),),
        retry_part=RangePart(last=SequenceNumber(23), rest=SequenceNumber(24), count=4),
    )
    assert first_tries([one], [end], []) == 7 + 4


def test_all_rows_of_a_range_that_covers_acked_records_are_first_tries() -> None:
    """A few failures among many of its rows are no outage, whatever it counts."""
    retries = (
        PlannedRetry(first=SequenceNumber(1), attempts=1),
        PlannedRetry(first=SequenceNumber(2), last=SequenceNumber(99), count=2, attempts=0),
    )
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(99)), max_records=0, retries=retries
    )
    end = ShardReadResult(shard_id="s", retries_done=2, retry_rows=99)
    assert first_tries([one], [end], []) == 98


def test_the_rows_of_a_range_that_was_tried_before_hide_no_outage() -> None:
    """However many acked records it covers besides those that it counts."""
    tried = PlannedRetry(first=SequenceNumber(1), last=SequenceNumber(990), count=2, attempts=1)
    alone = PlannedRetry(first=SequenceNumber(991), attempts=0)
    one = ShardSlice(
        shard_id="s",
        position=Position.after(SequenceNumber(999)),
        max_records=100,
        retries=(tried, alone),
    )
    end = ShardReadResult(
        shard_id="s",
        first=SequenceNumber(1_000),
        last=SequenceNumber(1_099),
        count=100,
        retries_done=2,
        retry_rows=991,
    )
    assert first_tries([one], [end], []) == 101


def test_a_range_does_not_span_two_planned_retries_or_new_records() -> None:
    """Settling replaces each planned retry by itself."""
    retries = (
        PlannedRetry(first=SequenceNumber(1), last=SequenceNumber(50), count=50, attempts=0),
        PlannedRetry(first=SequenceNumber(51), last=SequenceNumber(99), count=49, attempts=0),
    )
    one = ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(99)), max_records=1, retries=retries
    )
    outcomes = decide(
        [failed(n, ordinal=n) for n in range(1, 201)], context(slices={"s": one}, first_tries=200)
    )
    assert [(row.first.sequence, row.last.sequence) for row in queued(outcomes)] == [
        (1, 50),
        (51, 99),
        (100, 200),
    ]


def test_blocked_records_of_a_shard_are_one_range() -> None:
    records = [
        failed(1, ordinal=0),
        *(failed(n, Outcome.BLOCKED, ordinal=n - 1, reason=None) for n in range(2, 1000)),
    ]
    first, waiting = queued(decide(records, context(on_failure=OnFailure.BLOCK_SHARD)))
    assert (first.attempts, first.count, first.blocked) == (1, 1, False)
    assert (waiting.count, waiting.attempts, waiting.due_ms, waiting.blocked) == (998, 0, 0, True)


OUTCOMES = st.sampled_from([Outcome.BLOCKED, Outcome.UNCOUNTED, Outcome.RETRY, Outcome.REJECT])


@given(
    outcomes=st.dictionaries(
        st.integers(1, 400), st.tuples(OUTCOMES, st.integers(1, 5)), max_size=300
    ),
    limit=st.integers(0, 4),
    tried=st.integers(0, 600),
    succeeded=st.sampled_from([0, 1, 300]),
)
def test_every_failed_record_is_either_queued_or_a_letter(
    outcomes: dict[int, tuple[Outcome, int]], limit: int, tried: int, succeeded: int
) -> None:
    """Ranges are ascending and disjoint, and have no more attempts than their first record."""
    records = [
        failed(n, outcome, attempt=attempt, ordinal=n) for n, (outcome, attempt) in outcomes.items()
    ]
    decided = decide(
        records,
        context(
            retry=RetryPolicy(retry_limit=limit),
            first_tries=tried,
            records=len(outcomes) + succeeded,
            on_failure=OnFailure.BLOCK_SHARD,
        ),
    )
    rows = queued(decided)
    covered = {n for row in rows for n in range(row.first.sequence, row.last.sequence + 1)}
    letters = {int(letter.message_id.split(":")[1]) for letter in decided.letters}
    assert covered | letters == outcomes.keys()
    assert not covered & letters
    assert sum(row.count for row in rows) == len(covered)
    assert all(one.last < other.first for one, other in pairwise(rows))
    assert all(row.attempts <= outcomes[row.first.sequence][1] for row in rows)
    assert decided == decide(
        records[::-1],
        context(
            retry=RetryPolicy(retry_limit=limit),
            first_tries=tried,
            records=len(outcomes) + succeeded,
            on_failure=OnFailure.BLOCK_SHARD,
        ),
    )
