"""Decides what becomes of the records of a batch that did not simply succeed: pure, so that every
rule can be tried out.

    said of the record                            what becomes of it
    --------------------------------------------  -----------------------------------------------------------------------
    reject, malformed                             a letter, now
    retry, its last attempt or too old            a letter
    retry                                         queued: one attempt more, due after its backoff (or when it asked for)
    retry, in an outage                             queued: attempts as before, due after the outage's backoff
    failed with its whole batch (bisect)          queued: attempts as before, due after the first backoff
    failed alone (bisect)                         the same; as a retry, if another record succeeded since it failed before
    blocked                                       queued: attempts as before, due at once, behind what it waits for
    flagged as exhausted by the plan              a letter with its last failure; it was not tried again
    planned, but gone from the stream             a letter without payload

A outage is an outage, not bad records: of the records that were tried and had no failure counted
before, more than half, and at least 100, failed and may be tried again. What has failed while
others succeeded is no witness: a batch of such retries alone fails as a whole because they are bad.
Records of an outage that stand side by side are queued as one range, so it costs little however
large its batches are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_job.tracking.outcomes import FailedRecord, Outcome
from state.report import OnFailure, PlanReport, ShardOutcome
from state.shard_state import UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random

    from state.plan import PlannedRetry, ShardReadResult, ShardSlice
    from state.report import OutcomePolicy
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState

OUTAGE_RECORDS = 100
OUTAGE_DELAY_MS = 1_000
MAX_OUTAGE_DELAY_MS = 60_000
_MAX_DOUBLINGS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterNote:
    """What a dead letter says besides the record itself. `gone`: shard and number of a record of
    which only that is left.
    """

    message_id: str
    attempts: int
    first_failure_ms: int | None
    last_failure_ms: int | None
    reason: str | None
    gone: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """What a batch's outcomes are decided by: its policy, its plan's slices and ends, what its
    shards' states say, the time.

    `succeeded_ms`: when a record of an earlier batch of this run has last succeeded, None if none
    has. `first_tries` counts the records that were tried and had no failure counted before.
    `random` is seeded by the plan, so that a repetition draws the same.
    """

    policy: OutcomePolicy
    slices: Mapping[str, ShardSlice]
    ends: Mapping[str, ShardReadResult]
    states: Mapping[str, ShardState]
    outages: int
    first_tries: int
    succeeded_ms: int | None
    now_ms: int
    random: Random


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcomes:
    """The decision. `report` has all counts but those of the letters, which only count when they
    are written.
    """

    report: PlanReport
    letters: tuple[LetterNote, ...]


def first_tries(
    slices: Iterable[ShardSlice], ends: Iterable[ShardReadResult], failed: Iterable[FailedRecord]
) -> int:
    """How many records of a batch were tried that had no failure counted before: new ones, and such
    as an outage has queued.
    """
    planned = {one.shard_id: one.retries for one in slices}
    read = 0
    for end in ends:
        done = planned.get(end.shard_id, ())[: end.retries_done]
        read += end.count + sum(
            retry.count
            for retry in done
            if not retry.attempts and retry.first not in end.retries_gone
        )
    return read - sum(
        record.attempt == 1 and record.outcome in (Outcome.BLOCKED, Outcome.EXHAUSTED)
        for record in failed
    )


def is_outage(failed: Iterable[FailedRecord], tries: int) -> bool:
    """`tries`: what `first_tries` says."""
    count = sum(record.outcome is Outcome.RETRY and record.attempt == 1 for record in failed)
    return count >= OUTAGE_RECORDS and 2 * count > tries


def decide(failed: Iterable[FailedRecord], context: BatchContext) -> BatchOutcomes:
    """What becomes of the failed records of a batch, and of its plan's retries that are gone."""
    records = sorted(failed, key=lambda record: (record.shard_id, record.sequence))
    decider = _Decider(context, outage=is_outage(records, context.first_tries))
    letters: list[LetterNote] = list(_gone_letters(context))
    queued: dict[str, list[_Queued]] = {}
    exhausted = len(letters)
    for record in records:
        told = decider.tell(record)
        if isinstance(told, LetterNote):
            letters.append(told)
            exhausted += record.outcome is not Outcome.REJECT
        else:
            queued.setdefault(record.shard_id, []).append(
                _Queued(told, record.ordinal, decider.read_of(record))
            )
    mergeable = decider.outage or context.policy.on_failure is OnFailure.BLOCK_SHARD
    shards = tuple(
        ShardOutcome(
            shard_id=shard,
            unresolved=tuple(
                _merged(rows, only_blocked=not decider.outage)
                if mergeable
                else (q.row for q in rows)
            ),
        )
        for shard, rows in sorted(queued.items())
    )
    report = PlanReport(
        shards=shards,
        outage=decider.outage,
        failed=sum(
            record.outcome not in (Outcome.BLOCKED, Outcome.EXHAUSTED) for record in records
        ),
        retried=sum(len(rows) for rows in queued.values())
        - sum(record.outcome is Outcome.BLOCKED for record in records),
        exhausted=exhausted,
        done_ms=context.now_ms,
    )
    return BatchOutcomes(report=report, letters=tuple(letters))


@dataclass(frozen=True, slots=True)
class _Queued:
    """`read`: which of the plan's retries it came with, None for a new record. Settling takes no
    range of several of these.
    """

    row: UnresolvedRecord
    ordinal: int | None
    read: int | None


class _Decider:
    """Tells one record after the other, in the order of shards and numbers: that is the order of
    the draws.
    """

    def __init__(self, context: BatchContext, *, outage: bool) -> None:
        self._context = context
        self._known = {shard: _Known(state.unresolved) for shard, state in context.states.items()}
        self._retries = {
            shard: [retry.last or retry.first for retry in one.retries]
            for shard, one in context.slices.items()
        }
        self.outage = outage

    def tell(self, record: FailedRecord) -> LetterNote | UnresolvedRecord:
        known = (
            self._known[record.shard_id].of(record.sequence)
            if record.shard_id in self._known
            else None
        )
        match record.outcome:
            case Outcome.RETRY if not self.outage:
                return self._retry(record, known)
            case Outcome.ALONE if not self.outage and self._is_the_culprit(known):
                return self._retry(record, known)
            case Outcome.RETRY | Outcome.UNCOUNTED | Outcome.ALONE:
                return self._uncounted(record, known)
            case Outcome.BLOCKED:
                return self._blocked(record, known)
            case Outcome.REJECT:
                return self._letter(record, known)
        return LetterNote(
            message_id=record.message_id,
            attempts=record.attempt - 1,
            first_failure_ms=known.first_failure_ms if known else None,
            last_failure_ms=known.last_failure_ms if known else None,
            reason=known.reason if known else None,
        )

    def read_of(self, record: FailedRecord) -> int | None:
        """All retries of a shard lie before its new records."""
        lasts = self._retries.get(record.shard_id, [])
        at = bisect_left(lasts, record.sequence)
        return at if at < len(lasts) else None

    def _is_the_culprit(self, known: UnresolvedRecord | None) -> bool:
        """Whether the sink has taken another record since this one failed before."""
        succeeded_ms = self._context.succeeded_ms
        failed_ms = known.last_failure_ms if known else None
        return succeeded_ms is not None and failed_ms is not None and failed_ms < succeeded_ms

    def _retry(
        self, record: FailedRecord, known: UnresolvedRecord | None
    ) -> LetterNote | UnresolvedRecord:
        context, policy = self._context, self._context.policy.retry
        first_ms = _first_ms(known, context.now_ms)
        backoff_ms = policy.due_ms(
            record.attempt, context.now_ms, context.random
        )  # drawn also where it is not needed
        if policy.exhausted(record.attempt, first_ms, context.now_ms):
            return self._letter(record, known)
        due_ms = (
            backoff_ms if record.after_s is None else context.now_ms + round(record.after_s * 1000)
        )
        return self._queued(record, record.attempt, due_ms, first_ms)

    def _uncounted(self, record: FailedRecord, known: UnresolvedRecord | None) -> UnresolvedRecord:
        """Its age does not count either: an outage must not make a record too old."""
        context = self._context
        first_ms = known.first_failure_ms if known else None
        if self.outage:
            delay_ms = OUTAGE_DELAY_MS * 2 ** min(context.outages, _MAX_DOUBLINGS)
            due_ms = context.now_ms + min(delay_ms, MAX_OUTAGE_DELAY_MS)
        else:
            due_ms = context.policy.retry.due_ms(1, context.now_ms, context.random)
        return self._queued(record, record.attempt - 1, due_ms, first_ms)

    def _queued(
        self, record: FailedRecord, attempts: int, due_ms: int, first_ms: int | None
    ) -> UnresolvedRecord:
        return UnresolvedRecord(
            first=record.sequence,
            last=record.sequence,
            attempts=attempts,
            due_ms=due_ms,
            first_failure_ms=first_ms,
            last_failure_ms=self._context.now_ms,
            reason=record.reason,
            key=self._key(record),
        )

    def _blocked(self, record: FailedRecord, known: UnresolvedRecord | None) -> UnresolvedRecord:
        return UnresolvedRecord(
            first=record.sequence,
            last=record.sequence,
            attempts=record.attempt - 1,
            due_ms=0,
            first_failure_ms=known.first_failure_ms if known else None,
            last_failure_ms=known.last_failure_ms if known else None,
            reason=known.reason if known else None,
            key=self._key(record),
            blocked=True,
        )

    def _key(self, record: FailedRecord) -> str | None:
        return record.key if self._context.policy.on_failure is OnFailure.BLOCK_KEY else None

    def _letter(self, record: FailedRecord, known: UnresolvedRecord | None) -> LetterNote:
        now_ms = self._context.now_ms
        return LetterNote(
            message_id=record.message_id,
            attempts=record.attempt,
            first_failure_ms=_first_ms(known, now_ms),
            last_failure_ms=now_ms,
            reason=record.reason,
        )


class _Known:
    """What a shard's state says of its unresolved records, looked up by number."""

    def __init__(self, unresolved: Iterable[UnresolvedRecord]) -> None:
        self._rows = sorted(unresolved, key=lambda row: row.first)
        self._firsts = [row.first for row in self._rows]

    def of(self, sequence: SequenceNumber) -> UnresolvedRecord | None:
        at = bisect_right(self._firsts, sequence) - 1
        return self._rows[at] if at >= 0 and sequence <= self._rows[at].last else None


def _first_ms(known: UnresolvedRecord | None, now_ms: int) -> int:
    return now_ms if known is None or known.first_failure_ms is None else known.first_failure_ms


def _gone_letters(context: BatchContext) -> Iterator[LetterNote]:
    for shard_id, end in sorted(context.ends.items()):
        planned = (
            {retry.first: retry for retry in context.slices[shard_id].retries}
            if shard_id in context.slices
            else {}
        )
        known = (
            _Known(context.states[shard_id].unresolved)
            if shard_id in context.states
            else _Known(())
        )
        for first in end.retries_gone:
            if first in planned:
                yield _gone_letter(shard_id, planned[first], known.of(first))


def _gone_letter(shard_id: str, retry: PlannedRetry, known: UnresolvedRecord | None) -> LetterNote:
    several = f"{retry.count} records up to {retry.last} are " if retry.count > 1 else ""
    last_reason = known.reason if known and known.reason else "not known"
    return LetterNote(
        message_id=f"{shard_id}:{retry.first}:{retry.attempts + 1}",
        attempts=retry.attempts,
        first_failure_ms=known.first_failure_ms if known else None,
        last_failure_ms=known.last_failure_ms if known else None,
        reason=f"{several}past the stream's retention; last failure: {last_reason}",
        gone=(shard_id, str(retry.first)),
    )


def _merged(rows: Sequence[_Queued], *, only_blocked: bool) -> Iterator[UnresolvedRecord]:
    """Rows that stand side by side in their shard, and are to be treated alike, as one
    range each.
    """
    run: list[_Queued] = []
    for row in rows:
        if run and not (_are_alike(run[-1], row) and (row.row.blocked or not only_blocked)):
            yield _range(run)
            run = []
        run.append(row)
    if run:
        yield _range(run)


def _are_alike(one: _Queued, other: _Queued) -> bool:
    side_by_side = (
        one.ordinal is not None and other.ordinal is not None and other.ordinal == one.ordinal + 1
    )
    return side_by_side and one.read == other.read and _treatment(one.row) == _treatment(other.row)


def _treatment(row: UnresolvedRecord) -> tuple[int, int, int | None, bool]:
    return row.attempts, row.due_ms, row.first_failure_ms, row.blocked


def _range(run: Sequence[_Queued]) -> UnresolvedRecord:
    first, last = run[0].row, run[-1].row
    if len(run) == 1:
        return first
    return UnresolvedRecord(
        first=first.first,
        last=last.last,
        count=len(run),
        attempts=first.attempts,
        due_ms=first.due_ms,
        first_failure_ms=first.first_failure_ms,
        last_failure_ms=max(
            (q.row.last_failure_ms for q in run if q.row.last_failure_ms is not None), default=None
        ),
        reason=first.reason,
        blocked=first.blocked,
    )
