"""The search for poison records: in parts of a batch, for all positions that they can have, and
over deliveries that never answered: all records are queued, for smaller batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_job.tracking.poison_search import (
    Bisection,
    bisect,
    counted_deaths,
    deferral,
    died,
    max_calls,
)
from state.plan import (
    Plan,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
    TaskPlan,
    TaskResult,
)
from state.position import Position
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
END = ShardReadResult(
    shard_id="s",
    first=SequenceNumber(100),
    last=SequenceNumber(109),
    count=10,
    retries_done=3,
    retry_rows=6,
    retries_gone=(SequenceNumber(22),),
)


def settled(end: ShardReadResult, *, of: ShardState = STATE) -> ShardState:
    """The state of a deferred batch that has read this."""
    task = TaskPlan(shards=(SLICE,), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
    plan = Plan(plan_id="1-a", created_ms=0, tasks=(task,))
    report = deferral(plan, {0: TaskResult(shards=(end,))}, {"s": of}, limit=4)
    assert report.delivery_limit == 4
    return settle_shard(of, end, "1-a", SLICE, report.unresolved["s"])


@pytest.mark.parametrize(
    ("openings", "limit", "deaths"),
    [(1, None, -1), (2, None, 0), (0, 9, -1), (1, 9, 0), (0, 1, -1), (1, 1, 1), (3, 1, 3)],
)
def test_the_first_deaths_may_have_any_cause(openings: int, limit: int | None, deaths: int) -> None:
    """None counts of a first delivery, one of several records is free, two of an unlimited plan."""
    assert counted_deaths(openings, limit) == deaths


def test_all_records_of_a_deferred_batch_are_queued_as_they_were() -> None:
    """Also a record that is gone: the batch that tries the others writes its letter. The new
    records are due at once.
    """
    new = waiting(100, 109, attempts=0, due_ms=0, blocked=True, count=10)
    after = settled(END)
    assert after.unresolved == (*STATE.unresolved, new)
    assert after.read_position == Position.after(SequenceNumber(109))


def test_a_range_that_was_read_in_part_is_queued_as_two() -> None:
    part = RangePart(last=SequenceNumber(12), rest=SequenceNumber(13), count=3)
    short = ShortRange(first=SequenceNumber(10), missing=1)
    end = replace(END, first=None, last=None, count=0, retries_done=0, retry_rows=3)
    end = replace(end, retries_gone=(), retry_part=part)
    for read, counts in ((end, [3, 2]), (replace(end, retries_short=(short,)), [4, 2])):
        found = settled(read).unresolved
        assert [(one.first.sequence, one.last.sequence, one.count) for one in found[:2]] == [
            (10, 12, counts[0]),
            (13, 14, counts[1]),
        ]
        assert found[2:] == (SINGLE, GONE)
        assert {
            replace(one, first=BEFORE.first, last=BEFORE.last, count=5) for one in found[:2]
        } == {BEFORE}


def test_a_retry_is_queued_though_its_state_was_away_for_a_moment() -> None:
    """Somebody has restored it since. It would otherwise count as processed."""
    end = replace(END, first=None, last=None, count=0)
    task = TaskPlan(shards=(SLICE,), max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
    plan = Plan(plan_id="1-a", created_ms=0, tasks=(task,))
    report = deferral(plan, {0: TaskResult(shards=(end,))}, {}, limit=1)
    left = settle_shard(STATE, end, "1-a", SLICE, report.unresolved["s"]).unresolved
    assert [(one.first, one.last, one.attempts) for one in left] == [
        (one.first, one.last, one.attempts) for one in STATE.unresolved
    ]


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
