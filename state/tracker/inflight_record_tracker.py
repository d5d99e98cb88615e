"""Tracks what was emitted of one shard until it is resolved, and how far everything is.

The theory of operation and the tables of transitions are in `tracker_table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.errors import IllegalTrackerEventError
from state.tracker.core import TrackerCore
from state.tracker.emission import Emission
from state.tracker.nodes import Node
from state.tracker.snapshot import stored_record
from state.tracker.spans import Run
from state.tracker.transitions import Effect, Event, NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord

_TIMED_OUT = "no outcome until its deadline"


class InflightRecordTracker(TrackerCore):
    """The records of one shard between their first emission and their end, restored from and saved
    to a `ShardState`.

    Emit, ack and fail cost O(1) (amortised; entering the queue of retries or deadlines O(log n) at
    worst) whatever is in flight, and memory is O(unresolved records and gaps between them). Pure:
    times are arguments in milliseconds. Not safe from several threads at a time: the caller holds a
    lock.

    An event that is not allowed raises `IllegalTrackerEventError` and changes nothing. An outcome
    of an emission that is not known changes nothing and is told by its `Effect`. An emission is
    registered before its id exists: no ack is too early.
    """

    # emissions
    # ----------------------------------------------------------------------------------------------------
    def emit(self, sequence: SequenceNumber, *, deadline_ms: int | None = None) -> Emission:
        """Register a record's first emission, in the order of the shard. It times out at
        `deadline_ms`, if that is given.
        """
        self._append(sequence, sequence, 1)
        if deadline_ms is not None:
            self._deadlines.put(sequence, deadline_ms)
        return Emission(self._state.shard_id, sequence, 1, sequence)

    def emit_span(self, first: SequenceNumber, last: SequenceNumber, count: int) -> Emission:
        """Register the first emission of the `count` records from `first` to `last`, both
        inclusive, as one node.
        """
        if last < first or count < 1 or (count == 1) != (first == last):
            raise IllegalTrackerEventError(
                f"shard {self.shard_id}: {first} to {last} cannot be a span of {count} records; "
                "pass a span as it was read"
            )
        self._append(first, last, count)
        return Emission(self._state.shard_id, first, 1, last, count)

    def take_retry(self, now_ms: int, *, deadline_ms: int | None = None) -> Emission | None:
        """Emit the retry that is due, as `due_retry` names it; None when none is."""
        sequence = self.due_retry(now_ms)
        return None if sequence is None else self.retry(sequence, deadline_ms=deadline_ms)

    def due_retry(self, now_ms: int) -> SequenceNumber | None:
        """The record (or range, by its first number) that is due, the earliest due first, then the
        lowest number; or None.

        One that is older than the policy's maximum age by now is never named: it is found in
        `exhausted`.
        """
        while (sequence := self._retries.first_due(now_ms)) is not None:
            node = self._known(Event.RETRY, sequence)
            record = stored_record(node)
            if not self._policy.exhausted(record.attempts, record.first_failure_ms, now_ms):
                return sequence
            self._move(node, Event.EXHAUST)
            self._retries.discard(sequence)
            self._exhausted[sequence] = node
        return None

    def postpone(self, sequence: SequenceNumber, due_ms: int) -> None:
        """Let a queued record be due at another time, here and now: what is stored of it stays as
        it is.
        """
        node = self._known(Event.RETRY, sequence)
        if node.state is not NodeState.QUEUED:
            raise self._illegal("postponing", sequence, node.state.value)
        self._retries.put(sequence, due_ms)

    def retry(self, sequence: SequenceNumber, *, deadline_ms: int | None = None) -> Emission:
        """Emit a certain queued record (or range, by its first number) again, due or not."""
        node = self._known(Event.RETRY, sequence)
        self._move(node, Event.RETRY)
        self._retries.discard(sequence)
        if deadline_ms is not None:
            self._deadlines.put(sequence, deadline_ms)
        return self._emission(node)

    def reach_end(self) -> None:
        """The shard ends behind what was emitted."""
        self._end_reached = True

    # outcomes
    # -----------------------------------------------------------------------------------------------------
    def ack(self, sequence: SequenceNumber, attempt: int) -> Effect:
        """The record (or span, by its first number) was processed in that attempt, be it an earlier
        one.
        """
        node = self._nodes.get(sequence)
        if node is None or not 1 <= attempt <= node.deliveries:
            return Effect.UNKNOWN
        self._resolve(node, Event.ACK)
        return Effect.ACKED

    def ack_span(
        self, first: SequenceNumber, attempt: int, *, split_out: Sequence[SequenceNumber] = ()
    ) -> Effect:
        """Ack a pending span except for the records of `split_out` (ascending), which go on as
        records, pending in `attempt`.

        For a range that was restored, `split_out` may also be all records that were found in it.
        IGNORED when the span is not pending in that attempt any more: what of it failed would be
        acked with the rest, so all of it comes again.
        """
        if not split_out:
            return self.ack(first, attempt)
        node = self._nodes.get(first)
        if node is None or not _is_pending_in(node, attempt):
            return self._too_late(node, attempt)
        self._split(node, [Run(sequence, sequence, 1) for sequence in split_out])
        return Effect.ACKED

    def ack_except(
        self, first: SequenceNumber, attempt: int, unresolved: Sequence[UnresolvedRecord]
    ) -> Effect:
        """Ack a pending record, span or range except for `unresolved` (ascending), which are queued
        exactly as they are given.

        Each of those is a record of it, or a range of records that follow each other in it. The
        policy has no say: who calls this has decided. QUEUED when nothing is left to ack. IGNORED
        as by `ack_span`.
        """
        if not unresolved:
            return self.ack(first, attempt)
        node = self._nodes.get(first)
        if node is None or not _is_pending_in(node, attempt):
            return self._too_late(node, attempt)
        left = node.count - sum(record.count for record in unresolved)
        self._split(node, [Run(record.first, record.last, record.count) for record in unresolved])
        for record in unresolved:
            self._put_back(self._known(Event.FAIL, record.first), record, again=not record.rejected)
        return Effect.ACKED if left > 0 else Effect.QUEUED

    def fail(
        self,
        sequence: SequenceNumber,
        attempt: int,
        now_ms: int,
        *,
        reason: str | None = None,
        retry: bool = True,
        counts: bool = True,
        due_ms: int | None = None,
    ) -> Effect:
        """The record (or all of a span, by its first number) failed in that attempt. It is
        exhausted at once unless `retry`.

        - `counts`: False for a failure that is not the record's own, as in an outage: it is queued
          with the attempts and the first failure that it had, so its next delivery has the number
          of this one.
        - `due_ms`: when it may come again, instead of what the policy says. Whether it may is the
          policy's to say.
        """
        node = self._nodes.get(sequence)
        if node is None or not 1 <= attempt <= node.deliveries:
            return Effect.UNKNOWN
        if not _is_pending_in(node, attempt):
            return Effect.IGNORED
        record = self._failed(node, now_ms, reason, counts=counts, due_ms=due_ms)
        again = retry and not (
            counts and self._policy.exhausted(record.attempts, record.first_failure_ms, now_ms)
        )
        node.uncounted = not counts
        self._put_back(node, record if retry else replace(record, rejected=True), again=again)
        return Effect.QUEUED if again else Effect.EXHAUSTED

    def extend(self, sequence: SequenceNumber, attempt: int, deadline_ms: int | None) -> bool:
        """Let a pending emission time out at `deadline_ms` instead (None: never). False when that
        attempt is not pending.
        """
        node = self._nodes.get(sequence)
        if node is None or not _is_pending_in(node, attempt):
            return False
        if deadline_ms is None:
            self._deadlines.discard(sequence)
        else:
            self._deadlines.put(sequence, deadline_ms)
        return True

    def expire(self, now_ms: int) -> list[Emission]:
        """Fail every pending emission whose deadline is `now_ms` or earlier, and return them in the
        order of their deadlines.
        """
        expired = []
        while (sequence := self._deadlines.pop_due(now_ms)) is not None:
            emission = self._emission(self._known(Event.FAIL, sequence))
            self.fail(sequence, emission.attempt, now_ms, reason=_TIMED_OUT)
            expired.append(emission)
        return expired

    def dead_lettered(self, sequence: SequenceNumber) -> Effect:
        """An exhausted record is in the dead letter, so it counts as acked. Unknown when a late ack
        came first.
        """
        node = self._nodes.get(sequence)
        if node is None or node.state is NodeState.ACKED:
            return Effect.UNKNOWN
        self._resolve(node, Event.DEAD_LETTER)
        return Effect.ACKED

    # how
    # ------------------------------------------------------------------------------------------------------------------
    def _append(self, first: SequenceNumber, last: SequenceNumber, count: int) -> None:
        bound = self._bound
        passed = (
            bound is not None and not bound < first and not (self._bound_is_next and first == bound)
        )
        if passed or self._end_reached:
            node = self._nodes.get(first)
            behind = (
                "behind the end of the shard"
                if self._end_reached
                else f"not behind {bound}, which was emitted"
            )
            raise self._illegal("emission", first, behind if node is None else node.state.value)
        self._enter(Node(first, last, count, NodeState.PENDING))
        self._bound = last
        self._bound_is_next = False
        self._emitted = True

    def _failed(
        self, node: Node, now_ms: int, reason: str | None, *, counts: bool, due_ms: int | None
    ) -> UnresolvedRecord:
        record = stored_record(node)
        attempts = record.attempts + counts
        first_failure_ms = (
            now_ms if counts and record.first_failure_ms is None else record.first_failure_ms
        )
        return replace(
            record,
            attempts=attempts,
            due_ms=self._policy.due_ms(attempts, now_ms, self._random)
            if due_ms is None
            else due_ms,
            first_failure_ms=first_failure_ms,
            last_failure_ms=now_ms,
            reason=reason,
        )

    def _put_back(self, node: Node, record: UnresolvedRecord, *, again: bool) -> None:
        """A pending node failed and is `record` from now on: it waits for its retry, or for its
        dead letter.
        """
        self._move(node, Event.FAIL if again else Event.EXHAUST)
        node.record = record
        self._deadlines.discard(node.first)
        if again:
            self._retries.put(node.first, record.due_ms)
        else:
            self._exhausted[node.first] = node

    def _too_late(self, node: Node | None, attempt: int) -> Effect:
        return (
            Effect.IGNORED
            if node is not None and 1 <= attempt <= node.deliveries
            else Effect.UNKNOWN
        )


def _is_pending_in(node: Node, attempt: int) -> bool:
    return node.state is NodeState.PENDING and attempt == node.deliveries
