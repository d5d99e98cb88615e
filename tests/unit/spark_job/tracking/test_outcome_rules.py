"""Decisions on failed records: each rule by itself, and properties of all decisions."""

from __future__ import annotations

from functools import partial
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
from state.shard_state import UnresolvedRecord
from tests.support.state.shard_values import retry, state, with_records
from tests.support.state.shard_values import waiting as unresolved

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


def context(
    *known: UnresolvedRecord,
    retry: RetryPolicy = EXACT,
    on_failure: OnFailure = OnFailure.CONTINUE,
    **more: Any,
) -> BatchContext:
    values: dict[str, Any] = {
        "policy": OutcomePolicy(retry=retry, on_failure=on_failure),
        "slices": {},
        "reads": {},
        "states": {"s": with_records(state("s"), *known)} if known else {},
        "records": 1_000,
        "outages": 0,
        "first_tries": 1_000,
        "succeeded_ms": None,
        "now_ms": NOW_MS,
        "random": Random(1),  # noqa: S311  # a test draws the same
    }
    return BatchContext(**(values | more))


def queued(outcomes: BatchOutcomes) -> Sequence[UnresolvedRecord]:
    return [row for rows in outcomes.report.unresolved.values() for row in rows]


def slice_of(*retries: PlannedRetry) -> ShardSlice:
    return ShardSlice(
        shard_id="s", position=Position.after(SequenceNumber(999)), max_records=9, retries=retries
    )


def fields(row: UnresolvedRecord | LetterNote, expected: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in expected}


EAGER = RetryPolicy(retry_limit=0, jitter=0.0)
SLOW = RetryPolicy(first_delay_ms=300_000, jitter=0.0)
PAST = "past the stream's retention; last failure: as before"
BEFORE: dict[str, Any] = {"first_failure_ms": 1, "last_failure_ms": 2, "reason": "as before"}


def due_in(due_ms: int, attempts: int, **more: Any) -> dict[str, Any]:
    return {"due_ms": NOW_MS + due_ms, "attempts": attempts, **more}


AS_IT_FAILED = {"last_failure_ms": NOW_MS, "reason": "why", "key": None, "blocked": False}
IN_ORDER = {"on_failure": OnFailure.BLOCK_KEY}
JUST_FAILED = {"first_failure_ms": NOW_MS - 1, "last_failure_ms": NOW_MS - 1}


@pytest.mark.parametrize(
    ("record", "known", "batch", "expected"),
    [
        (
            failed(7, attempt=2),
            {"first_failure_ms": NOW_MS - 10},
            {},
            due_in(2_000, 2, first_failure_ms=NOW_MS - 10, count=1, **AS_IT_FAILED),
        ),
        # after the delay that the function asked for, also under suspicion; or the first backoff
        (failed(7, after_s=60.5), None, {}, due_in(60_500, 1)),
        (failed(7, after_s=60.5), None, {"records": 1}, due_in(60_500, 0)),
        (failed(7), None, {"records": 1, "retry": SLOW}, due_in(300_000, 0)),
        # it ages from its first counted failure: perhaps the sink was down before
        (
            failed(7),
            {"attempts": 0, "first_failure_ms": NOW_MS - 100_001},
            {},
            {"attempts": 1, "first_failure_ms": NOW_MS},
        ),
        # up to its maximum age
        (failed(7, attempt=2), {"first_failure_ms": NOW_MS - 100_000}, {}, {"attempts": 2}),
        # it failed together with others
        (
            failed(7, Outcome.UNCOUNTED),
            None,
            {"retry": EAGER},
            due_in(1_000, 0, first_failure_ms=NOW_MS),
        ),
        (
            failed(7, Outcome.UNCOUNTED, after_s=2.0),
            {"attempts": 0, "first_failure_ms": NOW_MS - 9_000},
            {},
            due_in(2_000, 0, first_failure_ms=NOW_MS - 9_000),
        ),
        (
            failed(7, Outcome.BLOCKED, attempt=2, reason=None, key="k"),
            BEFORE,
            IN_ORDER,
            {"attempts": 1, "due_ms": 0, "key": "k", "blocked": True, **BEFORE},
        ),
        # keys are stored only where they block
        (failed(7, key="k"), None, {}, {"key": None}),
        (failed(7, key="k"), None, IN_ORDER, {"key": "k"}),
        # with a counted failure it is bad, also where nothing else succeeds
        (failed(7, Outcome.RETRY, attempt=2), JUST_FAILED, {"records": 1}, due_in(2_000, 2)),
        (failed(7, Outcome.ALONE, attempt=2), JUST_FAILED, {"records": 1}, due_in(2_000, 2)),
    ],
)
def test_a_record_that_is_tried_again_is_queued_as_its_rule_says(
    record: FailedRecord,
    known: dict[str, Any] | None,
    batch: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    waiting = [] if known is None else [unresolved(7, **known)]
    outcomes = decide([record], context(*waiting, **batch))
    (row,) = queued(outcomes)
    assert fields(row, expected) == expected
    assert (row.first, row.last, outcomes.letters) == (record.sequence, record.sequence, ())


@pytest.mark.parametrize("whole", [True, False])
def test_a_letter_says_whether_its_record_was_delivered_whole(*, whole: bool) -> None:
    """A new record by the option of its plan, a retry as it failed, whatever the option is."""
    known = [unresolved(number, attempts=3, whole=not whole) for number in (6, 7)]
    records = [
        failed(6, Outcome.EXHAUSTED, attempt=4, reason=None),
        failed(7, Outcome.REJECT, attempt=4),
        failed(8, Outcome.REJECT),
        failed(9, Outcome.EXHAUSTED),
        failed(10, Outcome.EXHAUSTED, reason=None),
    ]
    outcomes = decide(records, context(*known, whole=whole))
    assert [letter.whole for letter in outcomes.letters] == [not whole] * 2 + [whole] * 3
    assert (outcomes.report.exhausted, outcomes.report.done_ms) == (3, NOW_MS)


FAILED_NOW = {"last_failure_ms": NOW_MS, "reason": "why"}
AT_FIRST = {"first_failure_ms": 1, **FAILED_NOW}
AGED = {"first_failure_ms": NOW_MS - 100_001}


@pytest.mark.parametrize(
    ("record", "known", "told", "counts"),
    [
        # delivered only to write its letter
        (
            failed(7, Outcome.EXHAUSTED, attempt=4, reason=None),
            {"attempts": 3, **BEFORE},
            {"attempts": 3, **BEFORE},
            (0, 1),
        ),
        # so its first failure is not the time of that delivery, if none is known
        (
            failed(7, Outcome.EXHAUSTED, reason=None),
            {"attempts": 0, "last_failure_ms": 2},
            {"attempts": 0, "first_failure_ms": None},
            (0, 1),
        ),
        (failed(7, Outcome.EXHAUSTED, reason=None), None, {"first_failure_ms": None}, (0, 1)),
        # its deliveries have ended their processes
        (
            failed(7, Outcome.EXHAUSTED, attempt=4),
            {"attempts": 3, **BEFORE},
            {"attempts": 3, **AT_FIRST},
            (0, 1),
        ),
        (
            failed(7, Outcome.REJECT, attempt=4),
            {"attempts": 3, **BEFORE},
            {"attempts": 4, **AT_FIRST},
            (1, 0),
        ),
        # a letter names the first failure that counted
        (
            failed(7, Outcome.REJECT),
            {"attempts": 0, "first_failure_ms": NOW_MS - 100_001},
            {"first_failure_ms": NOW_MS},
            (1, 0),
        ),
        # older than the maximum age
        (failed(7, attempt=2), AGED, {"attempts": 2, **AGED, **FAILED_NOW}, (1, 1)),
    ],
)
def test_a_record_that_is_not_tried_again_is_a_letter(
    record: FailedRecord,
    known: dict[str, Any] | None,
    told: dict[str, Any],
    counts: tuple[int, int],
) -> None:
    waiting = [] if known is None else [unresolved(7, **known)]
    outcomes = decide([record], context(*waiting))
    (letter,) = outcomes.letters
    assert (letter.message_id, fields(letter, told)) == (record.message_id, told)
    assert (outcomes.report.failed, outcomes.report.exhausted) == counts
    assert outcomes.report.retried == 0


@pytest.mark.parametrize(
    ("sequence", "letter"),
    [
        (
            SequenceNumber(7),
            LetterNote(
                message_id="s:7:3",
                attempts=2,
                **(BEFORE | {"reason": PAST}),
                gone=("s", "7"),
                whole=True,
            ),
        ),
        # a user record, not the first one of its aggregate, whose letter it would be taken for
        (
            SequenceNumber(7, 2),
            LetterNote(
                message_id="s:7.2:3",
                attempts=2,
                first_failure_ms=None,
                last_failure_ms=None,
                reason="past the stream's retention; last failure: not known",
                gone=("s", "7.2"),
            ),
        ),
    ],
)
def test_a_planned_retry_that_is_gone_is_a_letter_with_its_last_failure(
    sequence: SequenceNumber, letter: LetterNote
) -> None:
    known = unresolved(7, attempts=2, **BEFORE)
    one = slice_of(PlannedRetry(first=sequence, attempts=2, whole=letter.whole))
    reads = {
        "s": ShardReadResult(shard_id="s", retries_done=1, retries_gone=(sequence,)),
        "new": ShardReadResult(shard_id="new"),
    }
    outcomes = decide([], context(known, slices={"s": one}, reads=reads))
    assert outcomes.letters == (letter,)
    assert outcomes.report.exhausted == 1


ALL_GONE: dict[str, Any] = {"retries_done": 1, "retries_gone": (SequenceNumber(7),)}
SHORT: dict[str, Any] = {
    "retry_rows": 1,
    "retries_short": (ShortRange(first=SequenceNumber(7), missing=3),),
}
UP_TO_9 = RangePart(last=SequenceNumber(9), rest=SequenceNumber(10), count=1)


@pytest.mark.parametrize(
    ("count", "read", "missing", "told"),
    [
        (2, ALL_GONE, 2, f"2 records up to 30 are {PAST}"),
        (4, ALL_GONE, 4, f"4 records up to 30 are {PAST}"),
        (4, SHORT | {"retries_done": 1}, 3, f"3 of 4 records up to 30 are {PAST}"),
        (4, SHORT | {"retry_part": UP_TO_9}, 3, f"3 of 4 records up to 30 are {PAST}"),
    ],
    ids=["both", "all", "the first", "the first, of a part"],
)
def test_the_records_of_a_range_that_are_gone_are_one_letter_that_counts_them(
    count: int, read: dict[str, Any], missing: int, told: str
) -> None:
    """Numbers inside a range are not stored, so the letter names the first one."""
    known = unresolved(7, 30, count=count, attempts=2, reason="as before")
    planned = slice_of(retry(7, 30, count=count, attempts=2, max_records=3))
    end = ShardReadResult(shard_id="s", **read)
    outcomes = decide([], context(known, slices={"s": planned}, reads={"s": end}))
    assert outcomes.letters == (
        LetterNote(
            message_id="s:7:3",
            attempts=2,
            first_failure_ms=None,
            last_failure_ms=None,
            reason=told,
            gone=("s", "7"),
            records=missing,
        ),
    )
    assert outcomes.report.exhausted == missing


@pytest.mark.parametrize(
    ("failed_ms", "succeeded_ms", "attempts"),
    [
        (None, NOW_MS - 5, 0),
        (NOW_MS - 10, None, 0),
        (NOW_MS - 10, NOW_MS - 20, 0),
        (NOW_MS - 10, NOW_MS - 10, 0),
        (NOW_MS - 10, NOW_MS - 5, 1),
    ],
    ids=[
        "first failure",
        "nothing succeeded in this run",
        "nothing succeeded since",
        "nothing that is known to be later",
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


# few records --------------------------------------------------------------------------------------
SUSPECTS = (Outcome.RETRY, Outcome.ALONE)
first_try = partial(retry, attempts=0)


def planned(*firsts: int) -> dict[str, Any]:
    """The slice and the end of shard s, of which these retries were read."""
    retries = [retry(first, attempts=0) for first in firsts]
    return {
        "slices": {"s": slice_of(*retries)},
        "reads": {"s": ShardReadResult(shard_id="s", retries_done=len(retries))},
    }


def some(count: int, outcome: Outcome = Outcome.RETRY, **more: Any) -> list[FailedRecord]:
    return [failed(number, outcome, **more) for number in range(1, count + 1)]


def few(count: int) -> dict[str, Any]:
    """The batch has so many records, all of which are tried for the first time."""
    return {"records": count, "first_tries": count}


def queued_for(age_ms: int, count: int) -> dict[str, Any]:
    """A batch of records that an outage has queued so long ago."""
    first_ms = NOW_MS - age_ms
    known = [
        unresolved(n, attempts=0, first_failure_ms=first_ms, last_failure_ms=1)
        for n in range(1, count + 1)
    ]
    states = {"s": with_records(state("s"), *known)}
    return {"records": count, "states": states, **planned(*range(1, count + 1))}


def beside(*known: UnresolvedRecord) -> dict[str, Any]:
    """A batch of one record, beside these, of which none was read. With batches of one record, an
    outage would never show in one of them.
    """
    slices = {"s": slice_of(first_try(1))}
    return few(1) | {"states": {"s": with_records(state("s"), *known)}, "slices": slices}


EARLIER = partial(unresolved, attempts=0, last_failure_ms=1)


@pytest.mark.parametrize(
    ("records", "batch", "outage", "attempts"),
    [
        pytest.param(some(100), {"first_tries": 199}, True, {0}, id="more than half"),
        pytest.param(some(100), {"first_tries": 200}, False, {1}, id="half"),
        pytest.param(some(99), {"first_tries": 99}, False, {1}, id="ninety-nine, others succeed"),
        pytest.param(some(199, Outcome.REJECT), {"first_tries": 200}, False, set(), id="rejected"),
        # On a quiet stream all records of a batch may be bad, and would be retried for ever.
        pytest.param(some(500, attempt=2), {"first_tries": 0}, False, {2}, id="retries"),
        pytest.param(
            [*some(200), *(failed(n, attempt=3) for n in range(201, 204))],
            {"first_tries": 210},
            True,
            {0, 2},
            id="retries beside it",
        ),
        pytest.param(some(10), few(10), True, {0}, id="ten of ten"),
        pytest.param(some(10), few(11), False, {1}, id="ten of eleven"),
        pytest.param(some(9), few(9), False, {0}, id="nine of nine"),
        pytest.param(some(99), few(99), True, {0}, id="ninety-nine of as many"),
        pytest.param(some(99), few(100), False, {1}, id="ninety-nine of a hundred"),
        # A record that is bad by itself is no evidence.
        pytest.param(
            [*some(9), failed(10, attempt=2)], few(10), False, None, id="one failed before"
        ),
        pytest.param(
            [*some(9), failed(10, Outcome.REJECT)], few(10), False, None, id="one is rejected"
        ),
        # Bad records alone must not hold up later records forever.
        pytest.param(some(12), queued_for(299_999, 12), True, {0}, id="for five minutes"),
        pytest.param(some(12), queued_for(300_000, 12), False, {1}, id="after five minutes"),
        pytest.param(some(9), queued_for(1, 9), False, None, id="nine that were queued count once"),
        # Records that failed in earlier batches without a counted failure are evidence too.
        pytest.param(
            [failed(50)], beside(*map(EARLIER, range(1, 10))), True, {0}, id="nine earlier"
        ),
        pytest.param([failed(50)], beside(EARLIER(1, 9)), True, {0}, id="an earlier range"),
        pytest.param([failed(50)], beside(EARLIER(1, 8)), False, {0}, id="eight earlier"),
        pytest.param([failed(50)], beside(EARLIER(1, 9, attempts=1)), False, {0}, id="counted"),
        pytest.param([failed(50)], beside(EARLIER(1, 9, blocked=True)), False, {0}, id="blocked"),
        pytest.param(
            [failed(50)], beside(EARLIER(1, 9, rejected=True)), False, {0}, id="rejected earlier"
        ),
        pytest.param(
            [failed(50)], beside(EARLIER(1, 9, last_failure_ms=None)), False, {0}, id="never tried"
        ),
    ],
)
def test_what_is_an_outage(
    records: list[FailedRecord], batch: dict[str, Any], attempts: set[int] | None, *, outage: bool
) -> None:
    """More than half of the first tries and at least a hundred, or ten where nothing succeeds. Then
    no attempt counts. `attempts`: of what is queued.
    """
    outcomes = decide(records, context(**batch))
    assert outcomes.report.outage is outage
    assert not (outage and outcomes.letters)
    assert attempts in (None, {row.attempts for row in queued(outcomes)})


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


def test_rejected_records_are_no_evidence_that_the_sink_works() -> None:
    records = [failed(1), failed(2, Outcome.REJECT), failed(3, Outcome.BLOCKED)]
    outcomes = decide(records, context(records=3))
    assert [row.attempts for row in queued(outcomes)] == [0, 0]
    assert len(outcomes.letters) == 1


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
    assert {(row.last_failure_ms, row.reason) for row in queued(outcomes)} == {(NOW_MS, "why")}
    assert outcomes.letters == ()
    assert outcomes.report.retried == 151
    assert list(outcomes.report.unresolved) == ["s", "t"]


@pytest.mark.parametrize(
    ("outages", "delay_ms"), [(0, 1_000), (1, 2_000), (5, 32_000), (6, 60_000), (10_000, 60_000)]
)
def test_outages_back_off_to_a_minute(outages: int, delay_ms: int) -> None:
    outcomes = decide(
        [failed(n, ordinal=n) for n in range(1, 201)], context(outages=outages, first_tries=200)
    )
    assert {row.due_ms for row in queued(outcomes)} == {NOW_MS + delay_ms}


@pytest.mark.parametrize(
    "records",
    [
        [failed(n) for n in range(1, 201)],
        [failed(n, ordinal=n, attempt=1 + n % 2) for n in range(1, 401)],
    ],
    ids=["no ordinals", "other attempts"],
)
def test_records_that_are_not_known_to_be_alike_are_not_merged_in_an_outage(
    records: list[FailedRecord],
) -> None:
    """A range has one count of attempts: with the lowest, the other records are tried too often."""
    outcomes = decide(records, context(first_tries=200))
    assert outcomes.report.outage
    assert len(queued(outcomes)) == len(records)


@pytest.mark.parametrize(
    ("retries", "read", "failures", "tried"),
    [
        # neither those that are gone, nor those that were not read yet, nor withheld ones
        (
            [first_try(1, count=50), retry(60), *map(first_try, (61, 62, 63))],
            {"count": 7, "retries_done": 4, "retries_gone": (SequenceNumber(61),)},
            [
                failed(49, Outcome.BLOCKED),
                failed(60, Outcome.EXHAUSTED, attempt=2),
                failed(62, Outcome.BLOCKED),
                failed(100),
            ],
            7 + 50 + 1 - 2,
        ),
        # of a range that is short, and of one that was read in part, what was read
        (
            [first_try(n, n + 9) for n in (10, 20, 30)],
            {
                "retries_done": 1,
                "retry_rows": 11,
                "retries_short": (ShortRange(first=SequenceNumber(10), missing=3),),
                "retry_part": RangePart(last=SequenceNumber(23), rest=SequenceNumber(24), count=4),
            },
            [],
            7 + 4,
        ),
        # all rows of a range that covers acked records: few failures among them are no outage
        ([retry(1), first_try(2, 99, count=2)], {"retries_done": 2, "retry_rows": 99}, [], 98),
        # those of a range that was tried before hide none
        (
            [retry(1, 990, count=2), first_try(991)],
            {"count": 100, "retries_done": 2, "retry_rows": 991},
            [],
            101,
        ),
    ],
)
def test_first_tries_are_new_records_and_records_that_an_outage_has_queued(
    retries: list[PlannedRetry], read: dict[str, Any], failures: list[FailedRecord], tried: int
) -> None:
    end = ShardReadResult(shard_id="s", **read)
    other = ShardReadResult(shard_id="t", count=10)
    assert first_tries([slice_of(*retries)], [end, other], failures) == tried + 10


def test_a_range_does_not_span_two_planned_retries_or_new_records() -> None:
    """Settling replaces each planned retry by itself."""
    one = slice_of(first_try(1, 50), first_try(51, 99))
    outcomes = decide(
        [failed(n, ordinal=n) for n in range(1, 201)], context(slices={"s": one}, first_tries=200)
    )
    assert [(row.first.sequence, row.last.sequence) for row in queued(outcomes)] == [
        (1, 50),
        (51, 99),
        (100, 200),
    ]


def test_blocked_records_of_a_shard_are_one_range() -> None:
    """Of keys, each is by itself. Records that failed are by themselves but for an outage."""
    blocked = [failed(n, Outcome.BLOCKED, ordinal=n, reason=None) for n in range(2, 1000)]
    outcomes = decide([failed(1, ordinal=1), *blocked], context(on_failure=OnFailure.BLOCK_SHARD))
    first, waiting = queued(outcomes)
    assert (first.attempts, first.count, first.blocked) == (1, 1, False)
    assert (waiting.count, waiting.attempts, waiting.due_ms, waiting.blocked) == (998, 0, 0, True)
    assert (waiting.last_failure_ms, waiting.reason) == (None, None)
    assert outcomes.report.retried == 1
    of_keys = decide(blocked, context(on_failure=OnFailure.BLOCK_KEY))
    assert {row.count for row in queued(of_keys)} == {1}
    together = [failed(n, Outcome.UNCOUNTED, ordinal=n) for n in (1, 2)]
    both = decide(together, context(on_failure=OnFailure.BLOCK_SHARD))
    assert [row.count for row in queued(both)] == [1, 1]


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
    more: dict[str, Any] = {
        "retry": RetryPolicy(retry_limit=limit),
        "first_tries": tried,
        "records": len(outcomes) + succeeded,
        "on_failure": OnFailure.BLOCK_SHARD,
    }
    decided = decide(records, context(**more))
    rows = queued(decided)
    covered = {n for row in rows for n in range(row.first.sequence, row.last.sequence + 1)}
    letters = {int(letter.message_id.split(":")[1]) for letter in decided.letters}
    assert covered | letters == outcomes.keys()
    assert not covered & letters
    assert sum(row.count for row in rows) == len(covered)
    assert all(one.last < other.first for one, other in pairwise(rows))
    assert all(row.attempts <= outcomes[row.first.sequence][1] for row in rows)
    assert decided == decide(records[::-1], context(**more))
