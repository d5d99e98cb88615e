"""Decides on each record of a batch that was not simply processed. Pure.

    outcome (`Outcome`)                     decision
    --------------------------------------  --------------------------------------------------
    REJECT: rejected, or malformed          dead letter, now
    RETRY, without attempts left, or too    dead letter
      old
    RETRY                                   queued: one more attempt, due after its backoff, or
                                            after the delay that the function requested
    RETRY, in an outage                     queued: attempts unchanged, due after the outage's
                                            backoff
    RETRY, in a suspected outage            queued: attempts unchanged, due after as long as it
                                            has been failing (at least the first backoff), or
                                            after the delay that the function requested
    UNCOUNTED: it failed together with      queued: attempts unchanged, due after the first
      other records (bisect)                backoff
    ALONE: it failed by itself, and no      as RETRY in an outage or in a suspected outage
      other record succeeded (bisect)
    BLOCKED: it was not tried               queued: attempts unchanged, due at once, behind the
                                            record for which it waits
    EXHAUSTED, according to the plan        dead letter with its last failure; not tried again
    EXHAUSTED, with a reason: its           dead letter with that reason; not tried again
      deliveries have ended the process
    (planned, but gone from the stream)     dead letter without payload; one for all expired
                                            records of a range

Outages: a sink that is down fails every record, and must not use up their retries. A *suspect* is a
record that has failed without a counted failure: a first attempt that failed in this batch, or a
record that an earlier batch queued in that way. A record with a counted failure has failed while
other records succeeded, or for a long time. That record itself is bad, so it is no evidence of an
outage.

    batch                                   decision
    --------------------------------------  --------------------------------------------------
    at least 100 first attempts failed,     an outage
      and these are more than half of all
    no success, at least 10 suspects        an outage, whatever the size of the batch, for up to
                                            5 minutes from the first failure of a suspect
    no success, fewer suspects              a suspected outage: a suspect's failure counts once
                                            another record has succeeded since its previous
                                            failure, or its first failure is 20 s ago
    any other                               no outage: the function works

"No success" means that every record that was tried has failed. Rejected records are no evidence
either way. The 20 s and the 5 minutes end the retries of a few bad records on a stream without
other records. Otherwise these records would be retried forever, and would delay later records. The
suspicion prevents a short outage from using up the retries on a stream of a few records a minute.

In an outage, neighbouring records of a shard are queued as one range. So an outage takes little
space in the shard state, however large its batches are. A record's age, and the first failure in
its dead letter, count from its first counted failure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from spark_job.tracking.outcomes import FailedRecord, Outcome
from state.plan import retries_read
from state.report import OnFailure, PlanReport
from state.retry_policy import SUSPICION_MS
from state.shard_state import UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from state.plan import PlannedRetry, ShardReadResult, ShardSlice
    from state.report import OutcomePolicy
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState

OUTAGE_RECORDS = 100
OUTAGE_SUSPECTS = 10
SMALL_OUTAGE_MS = 300_000
OUTAGE_DELAY_MS = 1_000
MAX_OUTAGE_DELAY_MS = 60_000
_MAX_DOUBLINGS = 16
_FAILED = (Outcome.RETRY, Outcome.ALONE, Outcome.UNCOUNTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterNote:
    """The part of a dead letter that is not in the record: its failures and the reason.

    - `gone`: shard and sequence number of an expired record, of which nothing else is known.
    - `records`: how many records the letter stands for. Of an expired range, or an expired part of
      one, only the first sequence number is known.
    - `whole`: the record was delivered without unpacking aggregates.
    """

    message_id: str
    attempts: int
    first_failure_ms: int | None
    last_failure_ms: int | None
    reason: str | None
    gone: tuple[str, str] | None = None
    records: int = 1
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """The input of the decision, besides the failed records.

    - `slices`, `reads`, `states`: by shard, the slice of the plan, the read of its task, and the
      state before the plan. `states` may be empty if the plan has no retries and a record has
      succeeded.
    - `records`: the number of the batch's records.
    - `outages`: the number of outages in a row before this batch. `first_tries`: the result of
      `first_tries`.
    - `succeeded_ms`: when a record of an earlier batch of this query run last succeeded, or None.
    - `whole`: the batch's new records were delivered without unpacking aggregates.
    - `next_limit`: the delivery limit of the next plan (`poison_search`), or None.
    - `random` draws the jitter. The plan is its seed, so a repeated batch draws the same values.
    """

    policy: OutcomePolicy
    slices: Mapping[str, ShardSlice]
    reads: Mapping[str, ShardReadResult]
    states: Mapping[str, ShardState]
    records: int
    outages: int
    first_tries: int
    succeeded_ms: int | None
    now_ms: int
    random: Random
    whole: bool = False
    next_limit: int | None = None

    def retries_of(self, shard_id: str) -> Sequence[PlannedRetry]:
        """Return the planned retries of a shard, ascending."""
        return self.slices[shard_id].retries if shard_id in self.slices else ()

    def known(self, shard_id: str, sequence: SequenceNumber) -> UnresolvedRecord | None:
        """Return the shard state's entry for this sequence number, if there is one."""
        rows = self.states[shard_id].unresolved if shard_id in self.states else ()
        at = bisect_right(rows, sequence, key=lambda row: row.first) - 1
        return rows[at] if at >= 0 and sequence <= rows[at].last else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcomes:
    """The decision on a batch. `report` has all counts except `dead_lettered` and `dropped`, which
    are true only after the letters are written.
    """

    report: PlanReport
    letters: tuple[LetterNote, ...]


def first_tries(
    slices: Iterable[ShardSlice], reads: Iterable[ShardReadResult], failed: Iterable[FailedRecord]
) -> int:
    """Return the number of records that were tried and have no counted failure: new records, and
    records that an earlier outage has queued.

    A range may have more rows than its count, and it is not known to which range such rows belong.
    They count as first attempts if one of the ranges has no counted failure.
    """
    planned = {one.shard_id: one.retries for one in slices}
    tries = 0
    for read in reads:
        retries = retries_read(planned.get(read.shard_id, ()), read)
        tried = sum(one.found for one in retries if one.retry.attempts)
        first = [one for one in retries if not one.retry.attempts]
        counted = sum(one.found for one in first)
        has_range = any(one.retry.last is not None and not one.is_gone for one in first)
        tries += read.count + (max(counted, read.retry_rows - tried) if has_range else counted)
    return tries - sum(
        record.attempt == 1 and record.outcome in (Outcome.BLOCKED, Outcome.EXHAUSTED)
        for record in failed
    )


def nothing_succeeded(failed: Collection[FailedRecord], records: int) -> bool:
    """Whether a batch of `records` records has failures and no success."""
    return len(failed) >= records and any(record.outcome in _FAILED for record in failed)


def is_outage(failed: Collection[FailedRecord], context: BatchContext) -> bool:
    """Whether the failures are an outage (see the module's docstring)."""
    count = sum(record.outcome is Outcome.RETRY and record.attempt == 1 for record in failed)
    if count >= OUTAGE_RECORDS and 2 * count > context.first_tries:
        return True
    return (
        nothing_succeeded(failed, context.records)
        and _suspects(failed, context) >= OUTAGE_SUSPECTS
        and context.now_ms - _suspected_since_ms(context) < SMALL_OUTAGE_MS
    )


def _suspected_since_ms(context: BatchContext) -> int:
    """Return the first failure of a suspect before this batch; the present time without one."""
    return min(
        (
            row.first_failure_ms
            for state in context.states.values()
            for row in state.unresolved
            if _is_suspect(row) and row.first_failure_ms is not None
        ),
        default=context.now_ms,
    )


def _suspects(failed: Iterable[FailedRecord], context: BatchContext) -> int:
    """Return the number of suspects in the batch and in the shard states."""
    count = sum(record.outcome in _FAILED and record.attempt == 1 for record in failed)
    for shard, state in context.states.items():
        done = context.reads[shard].retries_done if shard in context.reads else 0
        read = {retry.first for retry in context.retries_of(shard)[:done]}
        count += sum(
            row.count for row in state.unresolved if _is_suspect(row) and row.first not in read
        )
    return count


def _is_suspect(row: UnresolvedRecord) -> bool:
    has_failed = row.last_failure_ms is not None and not row.blocked and not row.rejected
    return has_failed and not row.attempts


def decide(failed: Iterable[FailedRecord], context: BatchContext) -> BatchOutcomes:
    """Decide on the failed records of a batch, and on its plan's expired retries. The order of
    `failed` does not matter. The same input gives the same decision.
    """
    # A fixed order, so that a repeated batch draws the same jitter for each record.
    records = sorted(failed, key=lambda record: (record.shard_id, record.sequence))
    decider = _Decider(
        context,
        outage=is_outage(records, context),
        nothing_succeeded=nothing_succeeded(records, context.records),
    )
    letters: list[LetterNote] = list(_gone_letters(context))
    queued: dict[str, list[tuple[FailedRecord, UnresolvedRecord]]] = {}
    exhausted = sum(letter.records for letter in letters)
    for record in records:
        decision = decider.decide(record)
        if isinstance(decision, LetterNote):
            letters.append(decision)
            exhausted += record.outcome is not Outcome.REJECT
        else:
            queued.setdefault(record.shard_id, []).append((record, decision))
    report = PlanReport(
        unresolved={shard: tuple(decider.merged(rows)) for shard, rows in sorted(queued.items())},
        delivery_limit=context.next_limit,
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


class _Decider:
    """Decides on the records one by one, in the order of shards and sequence numbers."""

    def __init__(self, context: BatchContext, *, outage: bool, nothing_succeeded: bool) -> None:
        self._context = context
        self.outage = outage
        self._nothing_succeeded = nothing_succeeded

    def decide(self, record: FailedRecord) -> LetterNote | UnresolvedRecord:
        """Return the note for the record's dead letter, or its entry in the queue."""
        known = self._context.known(record.shard_id, record.sequence)
        match record.outcome:
            case Outcome.RETRY | Outcome.ALONE if self._is_at_fault(record, known):
                return self._retry(record, known)
            case Outcome.RETRY | Outcome.UNCOUNTED | Outcome.ALONE:
                return self._uncounted(record, known)
            case Outcome.BLOCKED:
                first_ms = known.first_failure_ms if known else None
                return structs.replace(
                    self._queued(record, record.attempt - 1, 0, first_ms),
                    last_failure_ms=known.last_failure_ms if known else None,
                    reason=known.reason if known else None,
                    blocked=True,
                )
            case Outcome.REJECT:
                return self._letter(record, known)
        # Exhausted: the record was read for its letter only, so this delivery is no attempt.
        letter = replace(self._letter(record, known), attempts=record.attempt - 1)
        if record.reason is not None:  # its deliveries have ended the process (`poison_search`)
            return letter
        return replace(letter, **_last_failure(known))

    def retry_index_of(self, record: FailedRecord) -> int | None:
        """Return the index of the planned retry that contains the record; None for a new record."""
        # All planned retries of a shard are below its new records.
        retries = self._context.retries_of(record.shard_id)
        at = bisect_left(retries, record.sequence, key=lambda retry: retry.end)
        return at if at < len(retries) else None

    def merged(
        self, queued: Sequence[tuple[FailedRecord, UnresolvedRecord]]
    ) -> Iterator[UnresolvedRecord]:
        """Yield a shard's queued records. In an outage, and for blocked records under block_shard,
        neighbours with equal treatment are merged into ranges, because the shard state would have
        no room for single records.
        """
        blocks_shard = self._context.policy.on_failure is OnFailure.BLOCK_SHARD
        run: list[UnresolvedRecord] = []
        before: FailedRecord | None = None
        for record, row in queued:
            merges = self.outage or (blocks_shard and row.blocked)
            if run and not (
                merges
                and before is not None
                and self._are_neighbours(before, record)
                and _treatment(run[-1]) == _treatment(row)
            ):
                yield _range(run)
                run = []
            run.append(row)
            before = record
        if run:
            yield _range(run)

    def _are_neighbours(self, one: FailedRecord, other: FailedRecord) -> bool:
        return (
            one.ordinal is not None
            and other.ordinal == one.ordinal + 1
            # Settling replaces each planned retry separately, so no range may span two of them.
            and self.retry_index_of(one) == self.retry_index_of(other)
        )

    def _is_at_fault(self, record: FailedRecord, known: UnresolvedRecord | None) -> bool:
        """Whether the failure counts against the record, because the sink works or has had enough
        time to recover.
        """
        if self.outage:
            return False
        if record.attempt > 1 or not (self._nothing_succeeded or record.outcome is Outcome.ALONE):
            return True
        if known is None:
            return False
        succeeded_ms, failed_ms = self._context.succeeded_ms, known.last_failure_ms
        if succeeded_ms is not None and failed_ms is not None and failed_ms < succeeded_ms:
            return True
        first_ms = known.first_failure_ms
        return first_ms is not None and self._context.now_ms - first_ms >= SUSPICION_MS

    def _retry(
        self, record: FailedRecord, known: UnresolvedRecord | None
    ) -> LetterNote | UnresolvedRecord:
        now_ms, policy = self._context.now_ms, self._context.policy.retry
        letter = self._letter(record, known)
        # Draw even if the value is not needed. A repeated batch may find the record exhausted,
        # because it is older then, and the draws of the records after it must not shift.
        due_ms = policy.due_ms(record.attempt, now_ms, self._context.random)
        if policy.exhausted(record.attempt, letter.first_failure_ms, now_ms):
            return letter
        if record.after_s is not None:
            due_ms = now_ms + round(record.after_s * 1000)
        return self._queued(record, record.attempt, due_ms, letter.first_failure_ms)

    def _uncounted(self, record: FailedRecord, known: UnresolvedRecord | None) -> UnresolvedRecord:
        """Queue the record without counting this attempt."""
        now_ms, first_ms = self._context.now_ms, known.first_failure_ms if known else None
        first_ms = now_ms if first_ms is None else first_ms
        if self.outage:
            delay_ms = OUTAGE_DELAY_MS * 2 ** min(self._context.outages, _MAX_DOUBLINGS)
            due_ms = now_ms + min(delay_ms, MAX_OUTAGE_DELAY_MS)
        else:
            due_ms = self._context.policy.retry.due_ms(1, now_ms, self._context.random)
            if record.after_s is not None:
                due_ms = now_ms + round(record.after_s * 1000)
            elif record.outcome is not Outcome.UNCOUNTED:
                due_ms = max(due_ms, now_ms + min(now_ms - first_ms, MAX_OUTAGE_DELAY_MS))
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
            key=record.key if self._context.policy.on_failure is OnFailure.BLOCK_KEY else None,
        )

    def _letter(self, record: FailedRecord, known: UnresolvedRecord | None) -> LetterNote:
        """Return the note of a record that has failed now. The first failure is its first counted
        failure.
        """
        now_ms = self._context.now_ms
        first_ms = None if known is None else known.first_counted_failure_ms
        return LetterNote(
            message_id=record.message_id,
            attempts=record.attempt,
            first_failure_ms=now_ms if first_ms is None else first_ms,
            last_failure_ms=now_ms,
            reason=record.reason,
            whole=self._context.whole if known is None else known.whole,
        )


def _last_failure(known: UnresolvedRecord | None) -> dict[str, Any]:
    """Return the fields of a letter for a record that was not tried now."""
    return {
        "first_failure_ms": known.first_counted_failure_ms if known else None,
        "last_failure_ms": known.last_failure_ms if known else None,
        "reason": known.reason if known else None,
    }


def _gone_letters(context: BatchContext) -> Iterator[LetterNote]:
    for shard_id, read in sorted(context.reads.items()):
        for found in retries_read(context.retries_of(shard_id), read):
            if found.missing:
                retry, missing = found.retry, found.missing
                failure = _last_failure(context.known(shard_id, retry.first))
                several = f"{missing} of {retry.count} records up to {retry.end} are "
                if missing == retry.count:
                    several = f"{missing} records up to {retry.end} are " if missing > 1 else ""
                last_reason = failure["reason"] or "not known"
                reason = f"{several}past the stream's retention; last failure: {last_reason}"
                yield LetterNote(
                    message_id=f"{shard_id}:{retry.first}:{retry.attempts + 1}",
                    attempts=retry.attempts,
                    **(failure | {"reason": reason}),
                    gone=(shard_id, str(retry.first)),
                    records=missing,
                    whole=retry.whole,
                )


def _treatment(row: UnresolvedRecord) -> tuple[int, int, int | None, bool]:
    return row.attempts, row.due_ms, row.first_failure_ms, row.blocked


def _range(run: Sequence[UnresolvedRecord]) -> UnresolvedRecord:
    first, last = run[0], run[-1]
    if len(run) == 1:
        return first
    # A range has no key, because its records may have several keys. Under block_key, it blocks all
    # later rows of its shard (`withholding`).
    return UnresolvedRecord(
        first=first.first,
        last=last.last,
        count=len(run),
        attempts=first.attempts,
        due_ms=first.due_ms,
        first_failure_ms=first.first_failure_ms,
        last_failure_ms=max(
            (row.last_failure_ms for row in run if row.last_failure_ms is not None), default=None
        ),
        reason=first.reason,
        blocked=first.blocked,
    )
