"""A tracked batch without Spark: it changes the store as `src.tracked(process)` does, for given
failures.

It is written from the rules of `state.report`, not from the product's code: an independent source
of the expected reports.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from scheme.record import KPL_MAGIC
from spark_job.tracking.poison_search import counted_deaths, deferral
from state.plan import PlannedRetry, PlanStatus
from state.report import OnFailure, OutcomePolicy, PlanReport
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from state.plan import Plan, ShardReadResult, TaskResult
    from state.shard_state import ShardState
    from state.znodes.topics import StoreTopics
    from tests.support.simulated.simulated_job import SimulatedJob

Row = dict[str, Any]
Retry = TypeVar("Retry", PlannedRetry, UnresolvedRecord)
LAST_SUB = 10**9
AT_ONCE = OutcomePolicy(retry=RetryPolicy(retry_limit=3, first_delay_ms=0, jitter=0.0))
OUTAGE_RECORDS = 100
ENDED = "ended its process"
LATER_MS = (
    3_600_000  # a rejected record needs no due time: it is not tried again, its letter is written
)


class Rejection(str):
    """Why a record fails for good: it is not tried again, and its letter is written in
    this batch.
    """

    __slots__ = ()


class LateRejection(Rejection):
    """The same, but its letter is left to the next batch: it is queued, and the plan flags it as
    exhausted.
    """

    __slots__ = ()


def policy(on_failure: OnFailure = OnFailure.CONTINUE, **retry: Any) -> OutcomePolicy:
    """Without jitter and with immediate retries, unless set otherwise."""
    return OutcomePolicy(
        retry=RetryPolicy(**({"first_delay_ms": 0, "jitter": 0.0} | retry)), on_failure=on_failure
    )


def numbered(*numbers: int) -> Callable[[Row], bool]:
    """Whether a row is one of the stream's records with these numbers."""
    return lambda row: row["data"] in {f"record {number}".encode() for number in numbers}


def number_of(row: Row) -> SequenceNumber:
    """Its `sequenceNumber`, which may have a sub-sequence number here."""
    return SequenceNumber.parse(row["sequenceNumber"])


def is_whole(row: Row) -> bool:
    """Whether it is an aggregate, with its bytes."""
    return bool(row.get("data", b"").startswith(KPL_MAGIC))


def end_of(record: UnresolvedRecord) -> SequenceNumber:
    """The last user record in it; of an aggregate that was delivered with its bytes, any."""
    last = record.last
    return SequenceNumber(last.sequence, LAST_SUB) if record.whole and not last.sub else last


def key_of(row: Row) -> str:
    return sha256(row["partitionKey"].encode()).hexdigest()[:16]


@dataclass
class PlayedOutcomes:
    """`fails` returns why a row's record fails, or None. `calls` are the message ids that the
    function got, `letters` the dead letters, `whole_letters` those that have an aggregate.

    `gone` are records that have expired before their retry: shard, first and last number. `reports`
    false: the batch runs untracked. `resolved`, by plan and in their order: what the last run of
    the plan has processed, dead-lettered and found gone. What the function is
    given of a batch that nothing has answered is the product's decision.
    """

    open_store: Callable[[], StoreTopics]
    now_ms: Callable[[], int]
    fails: Callable[[Row], str | None]
    policy: OutcomePolicy = AT_ONCE
    reports: bool = True
    calls: list[str] = field(default_factory=list)
    letters: list[tuple[str, int, str]] = field(default_factory=list)
    whole_letters: set[str] = field(default_factory=set)
    gone: list[tuple[str, SequenceNumber, SequenceNumber]] = field(default_factory=list)
    done: list[PlanReport] = field(default_factory=list)
    resolved: dict[str, Resolved] = field(default_factory=dict)
    _tokens: Any = field(default_factory=count)

    def play(
        self, rows: Sequence[Row], on_step: Callable[[str], None] = lambda _: None
    ) -> list[Row]:
        """The rows whose records were processed. `on_step` gets "opened" and "reported"."""
        with closing(self.open_store()) as store:
            if self.reports:
                store.reports.mark_tracked(self.policy)
            pointer = store.plans.pointer()
            is_open = pointer is not None and pointer.status is PlanStatus.OPEN
            plan = store.plans.read(pointer.id) if pointer is not None and is_open else None
            if not self.reports or pointer is None or plan is None:
                if self.reports:
                    return self._processed_before(store, rows) or []
                return [row for row in rows if self.fails(row) is None]
            opened = store.reports.open(pointer.id, f"t{next(self._tokens)}")
            on_step("opened")
            seen = _seen(store.plans.read_results(pointer.id), rows)
            if seen is None:
                # All comes again. What this batch has written does not count: a record that does
                # not come again is a loss.
                store.reports.answer(opened)
                self.resolved.pop(pointer.id, None)
                return []
            held = _ids_by_shard(rows)
            ends = {end.shard_id: end for task in seen.values() for end in task.shards}
            states = {shard: stored.state for shard, stored in store.shard_states.load().items()}
            deaths = counted_deaths(opened.openings, plan.delivery_limit)
            known_gone = len(self.gone)
            if deaths >= 0 and len(rows) > 1:
                batch, good = _Batch(self, plan, {}, states), []
                report = deferral(plan, seen, states, limit=max(1, len(rows) // 4))
            else:
                batch = _Batch(self, plan, ends, states)
                if deaths > 0 and rows and self._is_exhausted(deaths, rows[0]):
                    batch.write_letter(rows[0], deaths, ENDED)
                    rows = []
                good = [row for row in rows if batch.accept(row)]
                report = batch.report(len(rows))
            report = msgspec.structs.replace(report, tasks=tuple(sorted(seen)))
            if plan.aggregated_records == "raw":
                report = report.of_whole_records
            self.letters += batch.letters
            store.reports.finish(opened, report)
            self.done.append(report)
            self.resolved.pop(pointer.id, None)
            self.resolved[pointer.id] = Resolved(
                held,
                good,
                [row["messageId"] for row in good],
                [message_id for message_id, _, _ in batch.letters if message_id.count(":") > 1],
                self.gone[known_gone:],
            )
            on_step("reported")
            return good

    def _is_exhausted(self, deaths: int, row: Row) -> bool:
        return self.policy.retry.exhausted(deaths + row["attempt"] - 1, None, 0)

    def _processed_before(self, store: StoreTopics, rows: Sequence[Row]) -> list[Row] | None:
        """The rows that a closed plan with a done report has processed, if they are the rows of
        this batch: the function is not called for them again. None if there is no such plan.

        The first of them may have expired since. Late attempts may have added other shards.
        """
        ids = _ids_by_shard(rows)
        for plan_id in reversed(store.plans.known()):
            resolved = self.resolved.get(plan_id)
            if store.reports.read(plan_id) is None or resolved is None:
                continue
            given = resolved.given
            if (not ids.keys().isdisjoint(given) or not (rows or given)) and all(
                (here := ids.get(shard, [])) == all_of[len(all_of) - len(here) :]
                for shard, all_of in given.items()
            ):
                return resolved.sunk
        return None


class Resolved(NamedTuple):
    """The outcome of a plan, in message ids: what its batch held, by shard, and the records that
    need not come again. `sunk`: the rows of the processed ones. `gone`: ranges as in
    `PlayedOutcomes.gone`.
    """

    given: dict[str, list[str]]
    sunk: list[Row]
    processed: list[str]
    dead: list[str]
    gone: list[tuple[str, SequenceNumber, SequenceNumber]]


def _ids_by_shard(rows: Sequence[Row]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for row in rows:
        ids.setdefault(row["shardId"], []).append(row["messageId"])
    return ids


def _seen(ends: Mapping[int, TaskResult], rows: Sequence[Row]) -> dict[int, TaskResult] | None:
    """The tasks whose rows the batch has; None if it has only some of a task's, as others have
    expired. A task may have been read by a zombie only, and its rows are not in the batch.
    """
    found = Counter(row["shardId"] for row in rows)
    seen: dict[int, TaskResult] = {}
    for task, result in ends.items():
        there = sum(found[end.shard_id] for end in result.shards)
        published = sum(end.count + end.retry_rows for end in result.shards)
        if there == published and result.sealed:
            seen[task] = result
        elif there:
            return None
    return seen


@dataclass(frozen=True)
class _Failed:
    """`place`: the index of the row among the shard's. `read`: the retry that the record belongs
    to, None for a new one.
    """

    row: Row
    reason: str
    place: int
    read: PlannedRetry | None


class _Batch:
    def __init__(
        self,
        played: PlayedOutcomes,
        plan: Plan,
        ends: dict[str, ShardReadResult],
        states: dict[str, ShardState],
    ) -> None:
        self.played, self.plan, self.now_ms, self.ends = played, plan, played.now_ms(), ends
        self.retries = {shard.shard_id: _Numbers(shard.retries) for shard in plan.slices.values()}
        self.stored = {shard: _Numbers(state.unresolved) for shard, state in states.items()}
        self.parents = {shard: state.parents for shard, state in states.items()}
        self.before = {shard: self._keys_before(shard) for shard in ends}
        self.failed: dict[str, list[_Failed]] = {}
        self.blocked: dict[str, list[Row]] = {}
        self.letters: list[tuple[str, int, str]] = []
        self.waiting: dict[
            str, dict[str | None, SequenceNumber]
        ] = {}  # by shard and key: the first number that waits
        self.rows: Counter[str] = Counter()
        self.missing = self.expired_letters = 0  # records that are gone, and their letters
        self.short: dict[tuple[str, SequenceNumber], int] = {}  # ranges of which some are gone
        for shard, end in ends.items():
            self.stored.setdefault(shard, _Numbers(()))  # somebody may have removed the state
            planned = self.retries[shard].all
            done = {retry.first for retry in planned[: end.retries_done]}
            left = [one for one in self.stored[shard].all if one.first not in done]
            if end.retry_part is not None:  # only what comes after the part still waits
                cut, rest = planned[end.retries_done].first, end.retry_part.rest
                left = [
                    msgspec.structs.replace(one, first=rest) if one.first == cut else one
                    for one in left
                ]
            self.waiting[shard] = {one.key: one.first for one in reversed(left)}
            for first in end.retries_gone:
                stored = self._expired(shard, first)
                self.missing += stored.count
                self.played.gone.append((shard, stored.first, end_of(stored)))
            for short in end.retries_short:
                self.missing += short.missing
                self.short[shard, self._expired(shard, short.first).first] = short.missing

    def _expired(self, shard: str, first: SequenceNumber) -> UnresolvedRecord:
        """The record, or range, that is gone as a whole or in part. It gets one letter."""
        stored = self.stored[shard].of(first)
        assert stored is not None
        self.expired_letters += 1
        self.letters.append((f"{shard}:{first}", stored.attempts, "past the stream's retention"))
        return stored

    def write_letter(self, row: Row, attempts: int, reason: str) -> None:
        self.letters.append((row["messageId"], attempts, reason))
        if is_whole(row):
            self.played.whole_letters.add(row["messageId"])

    def accept(self, row: Row) -> bool:
        """Whether the function has processed the row."""
        shard = row["shardId"]
        self.rows[shard] += 1
        retry = self.retries[shard].of(number_of(row))
        if retry is not None and self.short.pop((shard, retry.first), 0):
            # The first record that comes of a range: those before it are gone.
            before = SequenceNumber(number_of(row).sequence - 1, LAST_SUB)
            self.played.gone.append((shard, retry.first, before))
        if retry is not None and retry.exhausted:
            self.write_letter(row, retry.attempts, "may not be tried again")
            return False
        if self._must_wait(row):
            self.blocked.setdefault(shard, []).append(row)
            return False
        self.played.calls.append(row["messageId"])
        reason = self.played.fails(row)
        if reason is None:
            return True
        if isinstance(reason, Rejection) and not isinstance(
            reason, LateRejection
        ):  # it is finished, and blocks no other record
            self.write_letter(row, row["attempt"], reason)
            return False
        self.failed.setdefault(shard, []).append(_Failed(row, reason, self.rows[shard], retry))
        self._block_later(row)
        return False

    def _must_wait(self, row: Row) -> bool:
        """Whether an earlier record that blocks it is not processed."""
        waiting, number = self.waiting[row["shardId"]], number_of(row)
        before = self.before[row["shardId"]]
        match self.played.policy.on_failure:
            case OnFailure.BLOCK_KEY:
                return (
                    not before.isdisjoint((None, key_of(row)))
                    or min(waiting.get(None, number), waiting.get(key_of(row), number)) < number
                )
            case OnFailure.BLOCK_SHARD:
                return bool(before) or min(waiting.values(), default=number) < number
        return False

    def _keys_before(self, shard: str) -> set[str | None]:
        """The keys of all unresolved records of the shards that this one continues, and of those
        that they continue.
        """
        keys: set[str | None] = set()
        for parent in self.parents.get(shard, ()):
            if parent in self.stored:
                keys.update(one.key for one in self.stored[parent].all)
            keys |= self._keys_before(parent)
        return keys

    def _block_later(self, row: Row) -> None:
        waiting, number = self.waiting[row["shardId"]], number_of(row)
        waiting[key_of(row)] = min(number, waiting.get(key_of(row), number))

    def report(self, rows: int) -> PlanReport:
        failed = sum(
            not isinstance(one.reason, Rejection)
            for of_shard in self.failed.values()
            for one in of_shard
        )
        outage = failed >= OUTAGE_RECORDS and 2 * failed > rows
        unresolved = {}
        for shard in sorted(self.ends):
            of_shard = self.failed.get(shard, [])
            in_outage = [
                one for one in of_shard if outage and not isinstance(one.reason, Rejection)
            ]
            single = [one for one in of_shard if not outage or isinstance(one.reason, Rejection)]
            queued = self._ranges(in_outage) + [
                one for each in single if (one := self._queued(each)) is not None
            ]
            queued += [
                self._record(row, row["attempt"] - 1, 0, blocked=True)
                for row in self.blocked.get(shard, ())
            ]
            queued.sort(key=lambda one: one.first)
            if queued:
                unresolved[shard] = tuple(queued)
        limit = self.plan.delivery_limit
        return PlanReport(
            unresolved=unresolved,
            delivery_limit=None if limit is None else 2 * limit,
            outage=outage,
            failed=failed,
            dead_lettered=len(self.letters) - self.expired_letters + self.missing,
            done_ms=self.now_ms,
        )

    def _ranges(self, failed: Sequence[_Failed]) -> list[UnresolvedRecord]:
        """Ranges of an outage: a run of failed records is one range, and keeps its attempts."""
        due_ms = self.now_ms + min(60_000, 1_000 * 2**self.plan.outages)
        runs: list[list[_Failed]] = []
        for one in failed:
            before = runs[-1][-1] if runs else None
            if before is not None and (before.place + 1, before.read, before.row["attempt"]) == (
                one.place,
                one.read,
                one.row["attempt"],
            ):
                runs[-1].append(one)
            else:
                runs.append([one])
        found = []
        for run in runs:
            rest = {"reason": run[0].reason, "first_failure_ms": self._first_failure_ms(run[0].row)}
            record = self._record(run[0].row, run[0].row["attempt"] - 1, due_ms, **rest)
            last = number_of(run[-1].row)
            found.append(msgspec.structs.replace(record, last=last, count=len(run)))
        return found

    def _queued(self, failed: _Failed) -> UnresolvedRecord | None:
        retry, row, attempts = self.played.policy.retry, failed.row, failed.row["attempt"]
        if isinstance(failed.reason, Rejection):
            rest = {
                "reason": str(failed.reason),
                "first_failure_ms": self._first_failure_ms(row),
                "rejected": True,
            }
            return self._record(row, attempts, self.now_ms + LATER_MS, **rest)
        if retry.exhausted(attempts, self._first_failure_ms(row), self.now_ms):
            self.write_letter(row, attempts, failed.reason)
            return None
        due_ms = retry.due_ms(attempts, self.now_ms, Random(0))  # noqa: S311  # there is no jitter
        return self._record(
            row,
            attempts,
            due_ms,
            reason=failed.reason,
            first_failure_ms=self._first_failure_ms(row),
        )

    def _first_failure_ms(self, row: Row) -> int:
        stored = self.stored[row["shardId"]].of(number_of(row))
        known = None if stored is None else stored.first_failure_ms
        return self.now_ms if known is None else known

    def _record(self, row: Row, attempts: int, due_ms: int, **rest: Any) -> UnresolvedRecord:
        sequence = number_of(row)
        key = key_of(row) if self.played.policy.on_failure is OnFailure.BLOCK_KEY else None
        last_ms = None if rest.get("blocked") else self.now_ms
        return UnresolvedRecord(
            first=sequence,
            last=sequence,
            attempts=attempts,
            due_ms=due_ms,
            key=key,
            last_failure_ms=last_ms,
            **rest,
        )


class _Numbers(Generic[Retry]):
    """Records and ranges of them, by the numbers that they cover."""

    def __init__(self, ranges: Sequence[Retry]) -> None:
        self.all: list[Retry] = sorted(ranges, key=lambda one: one.first)
        self._firsts = [one.first for one in self.all]

    def of(self, number: SequenceNumber) -> Retry | None:
        place = bisect_right(self._firsts, number) - 1
        found = self.all[place] if place >= 0 else None
        return found if found is not None and number <= _last(found) else None


def _last(one: PlannedRetry | UnresolvedRecord) -> SequenceNumber:
    return one.first if one.last is None else one.last


def tracked(
    job: SimulatedJob, fails: Callable[[Row], bool], of: OutcomePolicy | None = None
) -> PlayedOutcomes:
    """Played outcomes for a simulated job, in its time."""
    return PlayedOutcomes(
        job.store,
        job.clock.now_ms,
        lambda row: "as planned" if fails(row) else None,
        of or policy(),
    )
