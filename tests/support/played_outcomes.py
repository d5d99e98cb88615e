"""Plays the part of a tracked batch without Spark: what `src.tracked(process)` does with the store, for given failures.

Written from the rules of `state.report`, not from the product's code: a second opinion on what a report holds.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from state.plan import PlanStatus
from state.report import OnFailure, OutcomePolicy, PlanReport, ShardOutcome
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from state.plan import Plan, ShardEnd, ShardSlice
    from state.shard_state import ShardState
    from state.state_store import StateStore

Row = dict[str, Any]
AT_ONCE = OutcomePolicy(retry=RetryPolicy(retry_limit=3, first_delay_ms=0, jitter=0.0))
STORM_RECORDS = 100


def policy(on_failure: OnFailure = OnFailure.CONTINUE, **retry: Any) -> OutcomePolicy:
    """Without jitter, and with retries that are due at once, unless told otherwise."""
    return OutcomePolicy(retry=RetryPolicy(**({"first_delay_ms": 0, "jitter": 0.0} | retry)), on_failure=on_failure)


def key_of(row: Row) -> str:
    return sha256(row["partitionKey"].encode()).hexdigest()[:16]


@dataclass
class PlayedOutcomes:
    """`fails` says of a row why its record fails, or None. `calls` are the message ids the function saw, `letters` the dead ones.

    `reports` false: the batch runs as if it were not tracked any more.
    """

    open_store: Callable[[], StateStore]
    now_ms: Callable[[], int]
    fails: Callable[[Row], str | None]
    policy: OutcomePolicy = AT_ONCE
    reports: bool = True
    calls: list[str] = field(default_factory=list)
    letters: list[tuple[str, int, str]] = field(default_factory=list)
    done: list[PlanReport] = field(default_factory=list)
    _tokens: Any = field(default_factory=count)

    def play(self, rows: Sequence[Row], on_step: Callable[[str], None] = lambda _: None) -> list[Row]:
        """The rows whose records were processed. `on_step` hears of "opened" and "reported"."""
        with closing(self.open_store()) as store:
            pointer = store.read_pointer()
            if not self.reports or pointer is None or pointer.status is not PlanStatus.OPEN:
                return [row for row in rows if self.fails(row) is None]
            store.mark_tracked(self.policy)
            opened = store.open_report(pointer.id, f"t{next(self._tokens)}")
            on_step("opened")
            plan = store.read_plan(pointer.id)
            assert plan is not None
            ends = {end.shard_id: end for task in store.read_ends(pointer.id).values() for end in task.shards}
            states = {shard: stored.state for shard, stored in store.load_states().items()}
            batch = _Batch(self, plan, ends, states)
            good = [row for row in rows if batch.accept(row)]
            report = batch.report(len(rows))
            self.letters += batch.letters
            store.finish_report(opened, report)
            self.done.append(report)
            on_step("reported")
            return good


class _Batch:
    def __init__(self, played: PlayedOutcomes, plan: Plan, ends: dict[str, ShardEnd], states: dict[str, ShardState]) -> None:
        self.played, self.plan, self.now_ms = played, plan, played.now_ms()
        self.ends = ends
        self.slices: dict[str, ShardSlice] = {shard.shard_id: shard for task in plan.tasks for shard in task.shards}
        self.stored = {shard: {record.first: record for record in state.unresolved} for shard, state in states.items()}
        self.failed: dict[str, list[tuple[Row, str]]] = {}
        self.blocked: dict[str, list[Row]] = {}
        self.letters: list[tuple[str, int, str]] = []
        self.waiting: dict[str, set[str | None]] = {}
        for shard, end in ends.items():
            done = {retry.first for retry in self.slices[shard].retries[: end.retries_done]}
            self.waiting[shard] = {one.key for first, one in self.stored[shard].items() if first not in done}
            for first in end.retries_gone:
                self.letters.append((f"{shard}:{first}", self.stored[shard][first].attempts, "past the stream's retention"))

    def accept(self, row: Row) -> bool:
        """Whether the function has processed it."""
        shard, first = row["shardId"], SequenceNumber.parse(row["sequenceNumber"])
        retry = next((one for one in self.slices[shard].retries if one.first == first), None)
        if retry is not None and retry.exhausted:
            self.letters.append((row["messageId"], retry.attempts, self.stored[shard][first].reason or ""))
            return False
        if self._must_wait(row):
            self.blocked.setdefault(shard, []).append(row)
            return False
        self.played.calls.append(row["messageId"])
        reason = self.played.fails(row)
        if reason is None:
            return True
        self.failed.setdefault(shard, []).append((row, reason))
        self.waiting[shard].add(key_of(row))
        return False

    def _must_wait(self, row: Row) -> bool:
        waiting = self.waiting[row["shardId"]]
        match self.played.policy.on_failure:
            case OnFailure.BLOCK_KEY:
                return None in waiting or key_of(row) in waiting
            case OnFailure.BLOCK_SHARD:
                return bool(waiting)
        return False

    def report(self, rows: int) -> PlanReport:
        failed = sum(map(len, self.failed.values()))
        storm = failed >= STORM_RECORDS and 2 * failed > rows
        outcomes = []
        for shard in sorted(self.ends):
            queued = [one for row, reason in self.failed.get(shard, ()) if (one := self._queued(row, reason, storm=storm))]
            queued += [self._record(row, row["attempt"] - 1, 0, blocked=True) for row in self.blocked.get(shard, ())]
            queued.sort(key=lambda one: one.first)
            if queued:
                outcomes.append(ShardOutcome(shard_id=shard, unresolved=tuple(queued)))
        return PlanReport(
            shards=tuple(outcomes), storm=storm, failed=failed, dead_lettered=len(self.letters), done_ms=self.now_ms
        )

    def _queued(self, row: Row, reason: str, *, storm: bool) -> UnresolvedRecord | None:
        if storm:
            due_ms = self.now_ms + min(60_000, 1_000 * 2**self.plan.storms)
            return self._record(row, row["attempt"] - 1, due_ms, reason=reason, first_failure_ms=self._first_failure_ms(row))
        retry, attempts = self.played.policy.retry, row["attempt"]
        if retry.exhausted(attempts, self._first_failure_ms(row), self.now_ms):
            self.letters.append((row["messageId"], attempts, reason))
            return None
        due_ms = retry.due_ms(attempts, self.now_ms, Random(0))  # noqa: S311  # there is no jitter
        return self._record(row, attempts, due_ms, reason=reason, first_failure_ms=self._first_failure_ms(row))

    def _first_failure_ms(self, row: Row) -> int:
        stored = self.stored[row["shardId"]].get(SequenceNumber.parse(row["sequenceNumber"]))
        known = None if stored is None else stored.first_failure_ms
        return self.now_ms if known is None else known

    def _record(self, row: Row, attempts: int, due_ms: int, **rest: Any) -> UnresolvedRecord:
        sequence = SequenceNumber.parse(row["sequenceNumber"])
        key = key_of(row) if self.played.policy.on_failure is OnFailure.BLOCK_KEY else None
        last_ms = None if rest.get("blocked") else self.now_ms
        return UnresolvedRecord(
            first=sequence, last=sequence, attempts=attempts, due_ms=due_ms, key=key, last_failure_ms=last_ms, **rest
        )
