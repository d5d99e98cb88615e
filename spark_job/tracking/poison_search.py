"""Finds the poison records of a batch: those that end the process which gets them, and those on
which a function fails as a whole. Pure.

A record that ends its process whenever the function gets it. A batch that never answers leaves no
trace but the count of its report's openings (`state.report.OpenReport`): each one of them ended
with the process, of whatever cause. One or two may be anything, a deployment or a machine that was
lost, so the batch is delivered as before. From the third on, the function gets only the first
records of the batch, a quarter of those of the delivery before. The others are deferred: they were
not tried, and are queued again as they were. What the tasks have published
fixes the order of the rows, so the same records come first in each replay.

Sooner or later a delivery answers, because the record is not in it; or a single record is left that
never answers. Each delivery of it alone counts as one of its attempts. When they are used up, it is
dead-lettered without being delivered again.

A batch that has answered with a part of its records says so in its report. The next plan gives the
function at most twice as many, the plan after it twice as many again, until nothing is deferred. No
new records are read meanwhile (`driver.stream_plans`), so the search is over a set that only
gets smaller.

The records of a batch on which a function fails as a whole (`bisect`). The search starts after the
whole batch has failed. It halves each part that failed and runs the halves: level by level down to
eighths, then one part after the other down to single records, so that some poison is found however
much there is. A single record that fails is poison. If one half succeeded, the other half must
contain the poison, so from the third level on it is halved without being run. A single record is
always run: perhaps the function fails only if both records are in one part.

The number of runs is bounded by `max_calls`. Parts that are then left over are queued again and
come with later batches.

A sink that is down must not be taken for poison:

- if more than four of the eight eighths fail, the whole batch counts as failed, after at most 14
  runs. A few poison records are in at most as many eighths, wherever they are;
- if nothing succeeded, the single records that failed are `alone` and not `poison`. This decides
  in batches that are too small for eighths, which are searched to single records while calls are
  left.
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
"""A range of positions: the first is included, the second is not."""
UNLIMITED_OPENINGS = 2
_QUARTER = 2  # bits
# What Spark 4 says when a Python worker or an executor has died, or Java without more memory.
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
    """How many records the function is given, and how many deliveries of a single record have not
    answered before: each is one of its attempts.
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
    """The records of a stream that the function is given, where it does not get all of them.

    - `records`: their number.
    - `results`: those of the tasks, cut to these rows.
    - `deferred`: the other records that were read, by shard, as they are queued again.
    """

    records: int
    results: dict[int, TaskResult]
    deferred: dict[str, tuple[UnresolvedRecord, ...]]


def is_searching(openings: int, planned: int | None) -> bool:
    """Whether the function may get only a part of a batch, after so many openings without an
    answer. `planned` is the plan's own limit.
    """
    return planned is not None or openings >= UNLIMITED_OPENINGS


def search_step(records: int, openings: int, planned: int | None) -> SearchStep:
    """The next delivery of a batch of `records`, after so many openings without an answer."""
    forgiven = UNLIMITED_OPENINGS if planned is None else 1
    before = [_records_at(records, opening, planned) for opening in range(forgiven, openings)]
    return SearchStep(_records_at(records, openings, planned), before.count(1))


def _records_at(records: int, openings: int, planned: int | None) -> int:
    most = records if planned is None else min(records, planned)
    quarters = openings if planned is not None else max(0, openings - UNLIMITED_OPENINGS + 1)
    return min(records, max(1, most >> (_QUARTER * quarters)))


def rows_in(results: Mapping[int, TaskResult]) -> int:
    """The number of rows that the tasks have published."""
    return sum(read.count + read.retry_rows for task in results.values() for read in task.shards)


def first_rows(results: Mapping[int, TaskResult], count: int) -> FirstRows:
    """The first `count` rows, at least one and at most all: in the order of the tasks and of their
    shards, each shard's by number.
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
    """Cut the results of a stream to these first rows (None: to none), and queue the others again.

    `numbers` are those of the first rows of shard `chosen.last`: `chosen.rows`, and one more if it
    has more rows.
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
        """The result of the given rows. Retries that are gone stay in it: they have no rows. What
        is missing of a range stays in it if one of the range's rows is given.
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
        """The records that are not given. A retry is queued again as `state` has it."""
        stored = {} if state is None else {one.first: one for one in state.unresolved}
        for found in retries_read(self.planned, self.read):
            if found.is_gone or not self._defers(found.last):
                continue
            retry = found.retry
            known = stored.get(retry.first) or UnresolvedRecord(
                first=retry.first, last=retry.end, attempts=retry.attempts, due_ms=0
            )
            # What is missing of a range has its dead letter once a record of the range is given.
            is_begun = self._given_in(retry.first, found.last) > 0
            count = found.found + (0 if is_begun else found.missing)
            yield self._rest(replace(known, last=found.last, count=count))
        first, last, count = self.read.first, self.read.last, self.read.count
        # Without a count: aggregates that have no user record of the shard.
        if count and first is not None and last is not None and self._defers(last):
            yield self._rest(
                UnresolvedRecord(
                    first=first, last=last, count=count, attempts=0, due_ms=0, blocked=True
                )
            )

    def _defers(self, last: SequenceNumber) -> bool:
        """Whether rows up to this number are deferred, of those that were read together."""
        return not self.numbers or (self.following is not None and self.following <= last)

    def _rest(self, read: UnresolvedRecord) -> UnresolvedRecord:
        """What is deferred of the records that were read together."""
        given = self._given_in(read.first, read.last)
        following = read.first if self.following is None else self.following
        return rest_of_range(read, following if given else read.first, read.count - given)

    def _given_in(self, first: SequenceNumber, last: SequenceNumber) -> int:
        return bisect_right(self.numbers, last) - bisect_left(self.numbers, first)

    def _retries_done(self) -> int:
        """How many of the planned retries are given as a whole, or gone, from the first on."""
        for index, retry in enumerate(self.planned[: self.read.retries_done]):
            if retry.first not in self.read.retries_gone and self._defers(retry.end):
                return index
        return self.read.retries_done

    def _part_of(self, retry: PlannedRetry) -> RangePart | None:
        """The part of a range that is given; None if nothing of it is."""
        count = self._given_in(retry.first, retry.end)
        if not count:
            return None
        until = self.numbers[bisect_right(self.numbers, retry.end) - 1]
        return RangePart(last=until, rest=self.following or until, count=count)


def with_deferred(report: PlanReport, given: BatchSubset) -> PlanReport:
    """The report of a batch of which only these records were given: the others stay unresolved."""
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
    """Whether the error says that a process died which ran the function: a Python worker, an
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

    - `poison`: records that failed by themselves, while others succeeded.
    - `alone`: records that failed by themselves, while nothing succeeded.
    - `unresolved`: parts that were not searched to the end.
    - `failed`: most of the batch fails, so nothing is known of single records.
    - `calls`: the number of runs, without the one of the whole batch.
    """

    poison: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    unresolved: list[Part] = field(default_factory=list)
    failed: bool = False
    calls: int = 0


def max_calls(count: int) -> int:
    """The limit on runs for a batch of `count` records, to which each poison record adds one."""
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
        """Run the halves of these parts. Returns those that failed and are not poison, in order.

        `may_skip`: a half is not run if it must fail because the other half succeeded.
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
