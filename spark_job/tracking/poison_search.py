"""Finds the poison records of a batch: records that end the process that gets them, and records
that make a batch function raise. Pure.

**A record that ends the process.** If the process dies, the batch leaves no trace except the number
of openings of its report (`state.report.OpenReport`): an opening without an answer ended with the
process, for whatever reason. One or two may have any cause, such as a deployment or a lost machine,
so the batch is delivered unchanged. After the second unanswered opening, the function is not called
for the batch. All of its records are deferred: they were not tried, and are queued again unchanged.
The report limits the next plan to a quarter of them.

With a limit, a plan has only queued records, and no new ones (`driver.backlog`). So the search
covers a set that only shrinks. A limited plan whose delivery is not answered is deferred, too, and
the limit shrinks to a quarter of its records. If the delivery is answered, the next plan gets twice
as many records, and so on. The search is over when no queued record is due.

Eventually a single record is left whose deliveries are never answered. Each delivery of that single
record counts as one of its attempts. When it has no attempts left, it is dead-lettered without
another delivery.

**A record that makes the function raise** (`bisect`). The search starts when the whole batch has
failed. It halves each failed part and runs the halves: level by level down to eighths, then part by
part down to single records, so that some poison is found however much there is. A single record
that fails is poison. If one half succeeded, the other half must contain the poison, so from the
third level on it is halved without being run. A single record is always run, because the function
may fail only if two records are in the same part.

`max_calls` limits the number of runs. The parts that are left are queued, and later batches
redeliver them.

A sink that is down must not be mistaken for poison:

- If more than four of the eight eighths fail, the whole batch counts as failed, after at most 14
  runs. A few poison records are in at most that many eighths, wherever they are.
- If no run succeeded, the single records that failed are `alone`, not `poison`. This covers batches
  that are too small for eighths; they are searched down to single records while runs are left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.errors import MAX_MESSAGE_CHARS, text_of
from spark_job.tracking.content_check import reads_of
from state.plan import retries_read
from state.report import PlanReport
from state.shard_state import UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from state.plan import Plan, TaskResult
    from state.shard_state import ShardState

MIN_RECORDS_FOR_EIGHTHS = 16
_EIGHTHS_DEPTH = 3
_MOST_FAILED_EIGHTHS = 4
Part = tuple[int, int]
"""A range of positions, without its end."""
UNCOUNTED_OPENINGS = 2
SHRINKS_BY, GROWS_BY = 4, 2
# Spark 4's messages when a Python worker or an executor has died, or Java has run out of memory.
_DEATHS = (
    "Python worker exited unexpectedly",
    "ExecutorLostFailure",
    "OutOfMemoryError",
    "exit code 137",
    "exited with code 137",
    "SIGKILL",
)
_DEAD_JVM = "Py4JNetworkError"


def counted_deaths(openings: int, limit: int | None) -> int:
    """Return how many unanswered openings of a batch there are besides those that may have any
    cause; negative if there are fewer. `limit`: the plan's delivery limit.
    """
    if not openings:
        return -1  # also with a limit of 1: a record may have several rows, as an aggregate has
    return openings - (UNCOUNTED_OPENINGS if limit is None else min(1, limit - 1))


def rows_in(results: Mapping[int, TaskResult]) -> int:
    """Return the number of rows that the tasks have published."""
    return sum(read.count + read.retry_rows for task in results.values() for read in task.shards)


def deferral(
    plan: Plan, results: Mapping[int, TaskResult], states: Mapping[str, ShardState], limit: int
) -> PlanReport:
    """Return the report of a batch whose records were not tried: they are queued again, and the
    next plan has at most `limit` of them. A retry stays as it is in `states`.
    """
    planned = plan.slices
    deferred: dict[str, tuple[UnresolvedRecord, ...]] = {}
    for shard, read in reads_of(results).items():
        stored = {one.first: one for one in states[shard].unresolved} if shard in states else {}
        left: list[UnresolvedRecord] = []
        for found in retries_read(planned[shard].retries if shard in planned else (), read):
            first, attempts = found.retry.first, found.retry.attempts
            known = stored.get(first) or UnresolvedRecord(
                first=first, last=found.last, attempts=attempts, due_ms=0
            )
            # Of a range that was read in part, settling queues the rest.
            left.append(replace(known, last=found.last, count=found.found + found.missing))
        # Without a count, the read has only aggregates without a user record of this shard.
        if read.count and read.first is not None and read.last is not None:
            left.append(
                UnresolvedRecord(
                    first=read.first,
                    last=read.last,
                    count=read.count,
                    attempts=0,
                    due_ms=0,
                    blocked=True,
                )
            )
        if left:
            deferred[shard] = tuple(left)
    return PlanReport(unresolved=deferred, delivery_limit=limit)


def died(error: BaseException) -> bool:
    """Whether the error shows that a process died that ran the function: a Python worker, an
    executor, or the JVM.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and not any(cause is known for known in causes):
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return any(
        type(one).__name__ == _DEAD_JVM
        or any(text in text_of(one, MAX_MESSAGE_CHARS) for text in _DEATHS)
        for one in causes
    )


@dataclass(slots=True)
class Bisection:
    """The result of the search.

    - `poison`: records that failed by themselves while other records succeeded.
    - `alone`: records that failed by themselves while no record succeeded.
    - `unresolved`: parts that were not searched to the end.
    - `failed`: most of the batch fails, so nothing is known about single records.
    - `calls`: the number of runs, without the run of the whole batch.
    """

    poison: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    unresolved: list[Part] = field(default_factory=list)
    failed: bool = False
    calls: int = 0


def max_calls(count: int) -> int:
    """Return the limit of runs for a batch of `count` records. Each poison record adds one run."""
    return 4 * max(1, (count - 1).bit_length())


def bisect(count: int, succeeds: Callable[[Part], bool]) -> Bisection:
    """Find the poison among `count` records. The run of the whole batch must have failed.

    `succeeds` runs the function on a part and says whether it succeeded.
    """
    found = Bisection()
    any_success = False

    def has_calls_left() -> bool:
        return found.calls < max_calls(count) + len(found.poison)

    def halve(level: list[Part], *, may_skip: bool) -> list[Part]:
        """Run the halves of these parts. Return the failed halves of several records, in order.

        `may_skip`: a half is not run if it must fail, because the other half succeeded.
        """
        nonlocal any_success
        failed: list[Part] = []
        for first, last in level:
            middle = (first + last + 1) // 2
            other_succeeded = False
            for half in [(first, middle), (middle, last)] if last - first > 1 else [(first, last)]:
                is_single = half[1] - half[0] == 1
                if may_skip and other_succeeded and not is_single:
                    failed.append(half)
                elif not has_calls_left():
                    found.unresolved.append(half)
                else:
                    found.calls += 1
                    if succeeds(half):
                        any_success = other_succeeded = True
                    elif is_single:
                        found.poison.append(half[0])
                    else:
                        failed.append(half)
        return failed

    parts: list[Part] = [(0, count)] if count else []
    for depth in range(_EIGHTHS_DEPTH):
        parts = halve(parts, may_skip=depth >= 2)
    found.failed = count >= MIN_RECORDS_FOR_EIGHTHS and len(parts) > _MOST_FAILED_EIGHTHS
    while not found.failed and parts and has_calls_left():
        parts = [*halve(parts[:1], may_skip=True), *parts[1:]]
    if not found.failed:
        found.unresolved += parts
        if not any_success:
            found.poison, found.alone = [], sorted(found.poison)
    found.poison.sort()
    found.unresolved.sort()
    return found
