"""The search for poison records: in parts of a batch, for all positions that they can have, and
over deliveries that never answered: the function gets the first rows, the others are queued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_job.tracking.poison_search import (
    BatchSubset,
    Bisection,
    FirstRows,
    SearchStep,
    bisect,
    died,
    is_searching,
    max_calls,
    rows_in,
    search_step,
    subset,
    with_deferred,
)
from state.plan import (
    Plan,
    PlannedRetry,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
    TaskPlan,
    TaskResult,
    retries_read,
)
from state.position import Position
from state.report import PlanReport
from state.sequence_number import SequenceNumber
from state.settle import settle_shard
from state.shard_state import ShardState
from tests.support.state.shard_values import retry, waiting

if TYPE_CHECKING:
    from spark_job.tracking.poison_search import Part

FAILED: dict[str, Any] = {"due_ms": 7, "first_failure_ms": 3, "reason": "bad"}
BEFORE = waiting(10, 14, attempts=2, **FAILED)
SINGLE, GONE = (waiting(number, attempts=0, **FAILED) for number in (20, 22))
STATE = ShardState(
    shard_id="s",
    read_position=Position.after(SequenceNumber(99)),
    unresolved=(BEFORE, SINGLE, GONE),
)
SLICE = ShardSlice(
    shard_id="s",
    position=STATE.read_position,
    max_records=100,
    retries=(retry(10, 14, attempts=2), retry(20, attempts=0), retry(22, attempts=0)),
)
NUMBERS = [*range(10, 15), 20, *range(100, 110)]
END = ShardReadResult(
    shard_id="s",
    first=SequenceNumber(100),
    last=SequenceNumber(109),
    count=10,
    retries_done=3,
    retry_rows=6,
    retries_gone=(SequenceNumber(22),),
)
OTHER = ShardReadResult(
    shard_id="t", first=SequenceNumber(1), last=SequenceNumber(4), count=4, retries_done=0
)


def give_first(
    count: int,
    numbers: list[int],
    state: ShardState,
    sliced: ShardSlice,
    *ends: ShardReadResult,
) -> BatchSubset:
    """The first rows of shard `s`, whose rows have these numbers."""
    read = [SequenceNumber(number) for number in numbers[: count + 1]]
    task = TaskPlan(shards=(sliced,), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
    plan = Plan(plan_id="1-a", created_ms=0, tasks=(task,))
    results = {number: TaskResult(shards=(end,)) for number, end in enumerate(ends)}
    return subset(FirstRows((), "s", count), read, plan, results, {"s": state})


def given_first(count: int) -> BatchSubset:
    return give_first(count, NUMBERS, STATE, SLICE, END, OTHER)


@pytest.mark.parametrize(
    ("records", "openings", "planned", "given", "attempts"),
    [
        (200, 1, None, 200, 0),
        (200, 2, None, 50, 0),
        (200, 6, None, 1, 1),
        (1, 2, None, 1, 0),
        (200, 0, 100, 100, 0),
        (200, 1, 100, 25, 0),
        (200, 4, 100, 1, 1),
        (200, 1, 1, 1, 0),
        (200, 2, 1, 1, 1),
    ],
)
def test_a_delivery_that_did_not_answer_is_repeated_with_a_quarter_of_its_records(
    records: int, openings: int, planned: int | None, given: int, attempts: int
) -> None:
    """The first crash costs nothing, nor does the second of a plan without a limit. From then on
    each delivery of a single record that did not answer is one of its attempts.
    """
    assert search_step(records, openings, planned) == SearchStep(given, attempts)
    assert is_searching(openings, planned) is (openings >= 2 or planned is not None)


@given(count=st.integers(1, 16))
def test_every_row_is_either_given_or_queued_again_as_it_was(count: int) -> None:
    """Settled with its report, the deferred rows are unresolved with unchanged attempts and due at
    once, and the others are acked. The ends of the given rows count exactly these.
    """
    made = given_first(count)
    assert (made.records, rows_in(made.results)) == (count, count)
    report = with_deferred(PlanReport(), made)
    assert report.delivery_limit == 2 * count
    assert [one.count for one in report.unresolved["t"]] == [4]
    state = settle_shard(STATE, END, "1-a", SLICE, report.unresolved.get("s", ()))
    left = NUMBERS[count:]
    assert sum(one.count for one in state.unresolved) == len(left)
    for one in state.unresolved:
        covered = [n for n in left if one.first.sequence <= n <= one.last.sequence]
        assert (len(covered), covered[0], covered[-1]) == (
            one.count,
            one.first.sequence,
            one.last.sequence,
        )
        before = BEFORE if covered[0] < 20 else SINGLE if covered[0] == 20 else None
        if before is not None:
            assert one == replace(before, first=one.first, count=one.count)
        else:
            assert (one.attempts, one.due_ms, one.blocked, one.reason) == (0, 0, True, None)


@pytest.mark.parametrize("count", range(1, 7))
def test_a_retry_that_is_gone_gets_its_letter_though_rows_before_it_are_deferred(
    count: int,
) -> None:
    """It is settled with this batch. Its letter would be written in no other."""
    cut = given_first(count).results[0].shards[0]
    gone = [one.retry.first for one in retries_read(SLICE.retries, cut) if one.is_gone]
    assert gone == [GONE.first]


@given(count=st.integers(1, 15), stored=st.integers(2, 5), missing=st.integers(0, 2))
def test_a_range_counts_what_it_still_owes_and_at_least_its_own_ends(
    count: int, stored: int, missing: int
) -> None:
    """Whatever its stored count is. What is missing of it has one letter: with its first rows."""
    before = replace(BEFORE, first=SequenceNumber(8) if missing else BEFORE.first, count=stored)
    planned = PlannedRetry(first=before.first, last=before.last, count=stored, attempts=2)
    single = retry(4, attempts=0)
    sliced = replace(SLICE, retries=(single, planned))
    alone = replace(SINGLE, first=single.first, last=single.first)
    state = replace(STATE, unresolved=(alone, before))
    short = ShortRange(first=before.first, missing=missing)
    end = replace(END, retries_done=2, retries_gone=(), retries_short=(short,) if missing else ())
    made = give_first(count, [4, *NUMBERS[:5], *NUMBERS[6:]], state, sliced, end)
    letters = sum(one.missing for one in retries_read(sliced.retries, made.results[0].shards[0]))
    assert letters == (missing if count > 1 else 0)
    report = with_deferred(PlanReport(), made)
    left = settle_shard(state, end, "1-a", sliced, report.unresolved.get("s", ())).unresolved
    owed = {1: stored, 5: 1}.get(count, max(2, stored - missing - (count - 1)))
    assert [one.count for one in left if one.last == before.last] == [owed] * (count < 6)


def test_of_a_range_that_was_read_in_part_only_what_was_read_is_deferred() -> None:
    """Nothing of it is, if all of that is given. Its rest is queued by the settling."""
    part = RangePart(last=SequenceNumber(12), rest=SequenceNumber(13), count=3)
    end = replace(END, retries_done=0, retry_rows=3, retries_gone=(), retry_part=part)
    numbers = [10, 11, 12, *NUMBERS[6:]]
    for count, deferred in ((1, [(11, 12, 2)]), (2, [(12, 12, 1)]), (3, []), (5, [])):
        made = give_first(count, numbers, STATE, SLICE, end)
        (deferred_rows,) = with_deferred(PlanReport(), made).unresolved.values()
        left = settle_shard(STATE, end, "1-a", SLICE, deferred_rows).unresolved
        found = [(one.first.sequence, one.last.sequence, one.count) for one in left]
        new = 100 + max(0, count - 3), 109, 10 - max(0, count - 3)
        assert found == [*deferred, (13, 14, 2), (20, 20, 1), (22, 22, 1), new]


def test_records_that_failed_come_before_the_deferred_ones_of_their_shard() -> None:
    failed = replace(BEFORE, first=SequenceNumber(11), last=SequenceNumber(11), count=1)
    report = PlanReport(unresolved={"s": (failed,)}, failed=1)
    joined = with_deferred(report, given_first(5))
    assert joined.unresolved["s"][0] == failed
    assert [one.first.sequence for one in joined.unresolved["s"]] == [11, 20, 100]
    assert joined.failed == 1


def raised_from(cause: Exception) -> Exception:
    error = ValueError("the sink failed")
    error.__cause__ = cause
    return error


class Py4JNetworkError(Exception):
    """As py4j names it."""


@pytest.mark.parametrize(
    ("error", "is_death"),
    [
        (ValueError("negative total"), False),
        (ConnectionError("down"), False),
        (RuntimeError("SparkException: Python worker exited unexpectedly (crashed)"), True),
        (RuntimeError("ExecutorLostFailure (executor 1 exited ...) exit code 137"), True),
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (raised_from(RuntimeError("Python worker exited unexpectedly (crashed)")), True),
        (raised_from(KeyError("n")), False),
    ],
)
def test_an_error_is_an_answer_unless_it_says_that_a_process_died(
    error: Exception, *, is_death: bool
) -> None:
    assert died(error) is is_death


class PoisonedBatch:
    """A batch with poison: a part that has one of these records fails. `done` was processed."""

    def __init__(self, poison: set[int]) -> None:
        self.poison = poison
        self.done: set[int] = set()

    def succeeds(self, part: Part) -> bool:
        records = set(range(*part))
        if records & self.poison:
            return False
        self.done |= records
        return True


def bisected(count: int, poison: set[int]) -> tuple[Bisection, PoisonedBatch]:
    batch = PoisonedBatch(poison)
    return bisect(count, batch.succeeds), batch


@given(count=st.integers(1, 300), data=st.data())
def test_every_record_is_processed_or_poison_or_unresolved_and_the_calls_are_bounded(
    count: int, data: st.DataObject
) -> None:
    poison = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    found, batch = bisected(count, poison)
    single = set(found.poison) | set(found.alone)
    assert found.calls <= max_calls(count) + len(single)
    assert single <= poison
    assert not batch.done & poison
    assert not (found.alone and batch.done), "others succeeded, so it is poison"
    if found.failed:
        assert count >= 16
        assert len(poison) > 4
        assert not single
        return
    assert single, "so the next batch has less poison"
    left = {record for part in found.unresolved for record in range(*part)}
    assert batch.done | single | left == set(range(count))
    assert not left & (batch.done | single)
    # With fewer calls than that no part was ever left over. Each poison record adds one, but a part
    # that was left over before it was found stays so.
    if (count < 16 and found.calls < max_calls(count)) or len(poison) == 1:
        assert single == poison, "a small batch is searched to single records"
        assert not left


@pytest.mark.parametrize("count", [16, 17, 1000, 1_000_000])
def test_an_outage_ends_the_search_after_fourteen_calls_however_large_the_batch_is(
    count: int,
) -> None:
    found = bisect(count, lambda _: False)
    assert found.failed
    assert found.calls == 14


@pytest.mark.parametrize("count", [1, 2, 3, 15])
def test_nothing_is_poison_where_nothing_succeeded(count: int) -> None:
    """A sink that is down is not poison, in a batch that is too small for eighths too."""
    found, _ = bisected(count, set(range(count)))
    assert (found.poison, found.alone) == ([], list(range(count)))
