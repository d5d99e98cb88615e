"""Finds the poison records of a batch: records that end the process that gets them, and records
that make a batch function raise. Pure.

**A record that ends the process.** If the process dies, the batch leaves no trace except the number
of openings of its report (`state.report.OpenReport`): an opening without an answer ended with the
process, for whatever reason. One or two may have any cause, such as a deployment or a lost machine,
so the batch is delivered unchanged. From the third unanswered opening on, the function gets only
the first records of the batch: a quarter of the records of the previous delivery. The other records
are deferred: they were not tried, and are queued again unchanged. The tasks' logs determine the
order of the rows, so each replay starts with the same records.

Eventually a delivery is answered, because it does not contain the record, or a single record is
left whose deliveries are never answered. Each delivery of that single record counts as one of its
attempts. When it has no attempts left, it is dead-lettered without another delivery.

A batch that was answered for only a part of its records says so in its report. The next plan gives
the function at most twice as many records, the plan after that four times as many, and so on, until
no record is deferred. No new records are read until then (`driver.stream_plans`), so the search
covers a set that only shrinks.

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

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from kinesis_spout.errors import MAX_MESSAGE_CHARS, text_of
from state.plan import RangePart, ShardReadResult, rest_of_range, retries_read
from state.shard_state import UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from state.plan import Plan, PlannedRetry, TaskResult
    from state.report import PlanReport
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState

MIN_RECORDS_FOR_EIGHTHS = 16
_EIGHTHS_DEPTH = 3
_MOST_FAILED_EIGHTHS = 4
Part = tuple[int, int]
"""A range of positions, without its end."""
UNLIMITED_OPENINGS = 2
_QUARTER = 2  # bits
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


class SearchStep(NamedTuple):
    """The number of records that the function gets, and the number of earlier unanswered deliveries
    of a single record, which count as its attempts.
    """

    records: int
    unanswered: int


class FirstRows(NamedTuple):
    """The first rows of a stream: all rows of `shards`, then the first `rows` of shard `last`."""

    shards: tuple[str, ...]
    last: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSubset:
    """The records of a stream that the function gets, if it does not get all records.

    - `records`: the number of these records.
    - `results`: the tasks' results, cut to these records.
    - `deferred`: the other records that were read, by shard, in the form in which they are queued.
    """

    records: int
    results: dict[int, TaskResult]
    deferred: dict[str, tuple[UnresolvedRecord, ...]]


def is_searching(openings: int, planned: int | None) -> bool:
    """Whether the function may get only a part of a batch, after this number of unanswered
    openings. `planned`: the plan's own limit.
    """
    return planned is not None or openings >= UNLIMITED_OPENINGS


def search_step(records: int, openings: int, planned: int | None) -> SearchStep:
    """Return the next delivery of a batch of `records`, after `openings` unanswered openings."""
    forgiven = UNLIMITED_OPENINGS if planned is None else 1
    before = [_records_at(records, opening, planned) for opening in range(forgiven, openings)]
    return SearchStep(_records_at(records, openings, planned), before.count(1))


def _records_at(records: int, openings: int, planned: int | None) -> int:
    most = records if planned is None else min(records, planned)
    quarters = openings if planned is not None else max(0, openings - UNLIMITED_OPENINGS + 1)
    return min(records, max(1, most >> (_QUARTER * quarters)))


def rows_in(results: Mapping[int, TaskResult]) -> int:
    """Return the number of rows that the tasks have published."""
    return sum(read.count + read.retry_rows for task in results.values() for read in task.shards)


def first_rows(results: Mapping[int, TaskResult], count: int) -> FirstRows:
    """Return the first `count` rows, in the order of the tasks, of their shards, and of the
    sequence numbers. `count`: at least one, and at most all rows.
    """
    shards: list[str] = []
    left = count
    for read in (read for _, task in sorted(results.items()) for read in task.shards):
        rows = read.count + read.retry_rows
        if rows >= left:
            return FirstRows(tuple(shards), read.shard_id, left)
        if rows:
            shards.append(read.shard_id)
            left -= rows
    raise ValueError(f"the tasks have published fewer rows than {count}")


def subset(
    chosen: FirstRows | None,
    numbers: Sequence[SequenceNumber],
    plan: Plan,
    results: Mapping[int, TaskResult],
    states: Mapping[str, ShardState],
) -> BatchSubset:
    """Cut the results of a stream to these first rows (None: to no row), and queue the other rows.

    `numbers`: the sequence numbers of the first `chosen.rows` rows of shard `chosen.last`, and of
    one row more if the shard has one.
    """
    shards, last, rows = chosen or FirstRows((), "", 0)
    planned = plan.slices
    deferred: dict[str, tuple[UnresolvedRecord, ...]] = {}

    def given(read: ShardReadResult) -> ShardReadResult:
        shard = read.shard_id
        if shard in shards:
            return read
        own = numbers if shard == last else ()
        cut = _Cut(
            read,
            planned[shard].retries if shard in planned else (),
            own[:rows],
            own[rows] if len(own) > rows else None,
        )
        if rest := tuple(cut.deferred(states.get(shard))):
            deferred[shard] = rest
        return cut.given()

    cut_results = {
        task: replace(result, shards=tuple(map(given, result.shards)))
        for task, result in results.items()
    }
    return BatchSubset(records=rows_in(cut_results), results=cut_results, deferred=deferred)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The rows of one shard, of which the first ones are given: those of `numbers`. `following` is
    the number of the row after them.
    """

    read: ShardReadResult
    planned: Sequence[PlannedRetry]
    numbers: Sequence[SequenceNumber]
    following: SequenceNumber | None

    def given(self) -> ShardReadResult:
        """Return the read, cut to the rows that the function gets. Expired retries stay in it,
        because they have no rows. A range's expired records stay if the function gets one of the
        range's rows.
        """
        read = self.read
        new = (
            0 if read.first is None or read.last is None else self._given_in(read.first, read.last)
        )
        done = self._retries_done()
        part = self._part_of(self.planned[done]) if done < len(self.planned) else None
        seen = {retry.first for retry in self.planned[: done + (part is not None)]}
        return replace(
            read,
            first=read.first if new else None,
            last=self.numbers[-1] if new else None,
            count=new,
            retry_rows=len(self.numbers) - new,
            retries_done=done,
            retries_short=tuple(one for one in read.retries_short if one.first in seen),
            retry_part=part,
        )

    def deferred(self, state: ShardState | None) -> Iterator[UnresolvedRecord]:
        """Yield the records that the function does not get. A retry stays as it is in `state`."""
        stored = {} if state is None else {one.first: one for one in state.unresolved}
        for found in retries_read(self.planned, self.read):
            if found.is_gone or not self._defers(found.last):
                continue
            retry = found.retry
            known = stored.get(retry.first) or UnresolvedRecord(
                first=retry.first, last=retry.end, attempts=retry.attempts, due_ms=0
            )
            # A range's expired records are dead-lettered once the function gets one of its records.
            is_begun = self._given_in(retry.first, found.last) > 0
            count = found.found + (0 if is_begun else found.missing)
            yield self._rest(replace(known, last=found.last, count=count))
        first, last, count = self.read.first, self.read.last, self.read.count
        # Without a count, the read has only aggregates without a user record of this shard.
        if count and first is not None and last is not None and self._defers(last):
            yield self._rest(
                UnresolvedRecord(
                    first=first, last=last, count=count, attempts=0, due_ms=0, blocked=True
                )
            )

    def _defers(self, last: SequenceNumber) -> bool:
        """Whether some row of a read that ends at this number is deferred."""
        return not self.numbers or (self.following is not None and self.following <= last)

    def _rest(self, read: UnresolvedRecord) -> UnresolvedRecord:
        """Return the deferred part of a read."""
        given = self._given_in(read.first, read.last)
        following = read.first if self.following is None else self.following
        return rest_of_range(read, following if given else read.first, read.count - given)

    def _given_in(self, first: SequenceNumber, last: SequenceNumber) -> int:
        return bisect_right(self.numbers, last) - bisect_left(self.numbers, first)

    def _retries_done(self) -> int:
        """Return how many of the planned retries, from the first on, are given whole or expired."""
        for index, retry in enumerate(self.planned[: self.read.retries_done]):
            if retry.first not in self.read.retries_gone and self._defers(retry.end):
                return index
        return self.read.retries_done

    def _part_of(self, retry: PlannedRetry) -> RangePart | None:
        """Return the part of a range that the function gets; None if it gets no record of it."""
        count = self._given_in(retry.first, retry.end)
        if not count:
            return None
        until = self.numbers[bisect_right(self.numbers, retry.end) - 1]
        return RangePart(last=until, rest=self.following or until, count=count)


def with_deferred(report: PlanReport, given: BatchSubset) -> PlanReport:
    """Return the report of a batch of which the function got only a subset. The other records stay
    unresolved.
    """
    if not given.deferred:
        return report
    failed = report.unresolved
    unresolved = {
        shard: tuple(
            sorted(
                (*failed.get(shard, ()), *given.deferred.get(shard, ())), key=lambda row: row.first
            )
        )
        for shard in sorted(failed.keys() | given.deferred.keys())
    }
    return replace(report, unresolved=unresolved, delivery_limit=2 * given.records)


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
