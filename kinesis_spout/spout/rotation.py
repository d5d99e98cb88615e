"""The order in which a spout emits the records of its shards. Pure: times are arguments, in ms of a
clock that never goes back.

A shard is in the rotation while it has a record to emit, and emits one record per turn. A shard
with an empty buffer, or with retries that are not due yet, is not in the rotation and costs
nothing. While `max_pending` records are pending, no new record is emitted. Due retries are still
emitted, because their shards are in a second rotation.

*Isolated delivery* finds a record that ends its process at each delivery. Every later process gets
such a record again, and its attempts are never counted, because its deliveries have no outcome. So
isolation starts after two starts in a row whose spouts were not closed
(`kinesis_spout.spout.assigner.UncleanStarts`). The same records are then emitted in the same order,
but one at a time over all shards, and each one only after its shard's stored state contains the
delivery as a failed attempt (the *announcement*). If the process ends now, it has counted an
attempt of this one record. Eventually the record is exhausted and dead-lettered like any other
record.

The outcome of an isolated delivery replaces the announced failure, so an answered delivery counts
once. Isolation ends after enough deliveries, or when all shards are at their tips, as soon as the
last outcome is stored. It continues while there is a record that a process announced before it
ended.
"""

from __future__ import annotations

import math
from collections import deque
from enum import IntEnum
from math import floor
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.spout.emission import SpoutEmission
from state.collections import DueQueue
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.emission import AssignedShard
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord


class Phase(IntEnum):
    """The phases of an isolated delivery. Each phase may be followed by SETTLED: a late ack of an
    earlier attempt may come first, or the shard may be released.
    """

    ANNOUNCED = 0  # the shard's state, not stored yet, contains it as a failed attempt
    STORED = 1  # the stored state contains it as a failed attempt
    OUT = 2  # the program has it
    SETTLED = 3  # the stored state contains its outcome


class Isolation:
    """The isolated delivery of a spout. The caller holds the spout's lock.

    `emission`: the emission that was announced last; None before the first one, and if isolation is
    off. `phase`: the phase of that emission; SETTLED without one.
    """

    def __init__(self) -> None:
        self.emission: SpoutEmission | None = None
        self.phase = Phase.SETTLED
        self._asked_with_outcome: bool | None = None
        self._deliveries_left: int | None = None  # None: off

    @property
    def is_on(self) -> bool:
        return self._deliveries_left is not None

    @property
    def is_complete(self) -> bool:
        """Whether isolation is on and has made all of its deliveries."""
        return self._deliveries_left == 0

    @property
    def waits_for_outcome(self) -> bool:
        """Whether the announced delivery has no outcome yet, and its shard is not released. No
        other record is emitted then.
        """
        emission = self.emission
        if emission is None or emission.assigned.is_released:
            return False
        tracker = emission.assigned.shard.tracker
        return tracker.is_pending(emission.sequence, emission.attempt)

    def begin(self, deliveries: int) -> None:
        """Isolate so many deliveries, or fewer if there is nothing left to deliver."""
        self._deliveries_left = max(deliveries, self._deliveries_left or 0)

    def announce(self, emission: SpoutEmission, now_ms: int) -> None:
        """Record a new delivery as a failed attempt in the state of its shard."""
        emission.assigned.shard.announce(emission, now_ms)
        emission.assigned.is_dirty = True
        self.emission, self.phase = emission, Phase.ANNOUNCED
        self._asked_with_outcome = None

    def asks_for_commit(self) -> bool:
        """Whether a commit is needed now. Returns True once for the announcement and once for the
        outcome.
        """
        has_outcome = not self.waits_for_outcome
        is_stored = self.phase >= (Phase.SETTLED if has_outcome else Phase.STORED)
        if is_stored or self._asked_with_outcome is has_outcome:
            return False
        self._asked_with_outcome = has_outcome
        return True

    def on_commit(self, emission: SpoutEmission, *, with_outcome: bool) -> None:
        """Note that the state of the emission's shard was stored, with or without the outcome. A
        no-op if another emission was announced in the meantime.
        """
        if emission is self.emission:
            self.phase = max(self.phase, Phase.SETTLED if with_outcome else Phase.STORED)

    def take(self, deadline_ms: int | None) -> SpoutEmission | None:
        """Return the announced delivery for the program: once, and only after it is stored."""
        emission = self.emission
        if emission is None or self.phase is not Phase.STORED:
            return None
        self.phase = Phase.OUT
        self._deliveries_left = max(0, (self._deliveries_left or 0) - 1)
        emission.assigned.shard.extend(emission, deadline_ms)
        return emission

    def withdraw(self) -> None:
        """Withdraw the announced attempt at a clean end, which is no crash."""
        if self.emission is not None and self.waits_for_outcome:
            self.emission.assigned.shard.tracker.withdraw(self.emission.sequence)
            self.emission.assigned.is_dirty = True

    def taken_back(
        self, shard_id: str, unresolved: tuple[UnresolvedRecord, ...]
    ) -> tuple[UnresolvedRecord, ...]:
        """Return the stored records of a shard that was released and is assigned again, without the
        announced attempt: this process announced it and has not ended. Returns `unresolved` itself
        if there is no such attempt.
        """
        emission = self.emission
        if emission is None or emission.shard_id != shard_id or not emission.assigned.is_released:
            return unresolved
        return tuple(
            _without_announced(record)
            if record.first == emission.sequence and record.reason == UNANSWERED
            else record
            for record in unresolved
        )

    def end(self) -> bool:
        """End isolation if the last outcome is stored, and return whether it has ended. Ended
        earlier, a crash would cost the last record an attempt.
        """
        if self.phase is not Phase.SETTLED:
            return False
        self.emission = self._deliveries_left = None
        return True


def _without_announced(record: UnresolvedRecord) -> UnresolvedRecord:
    if record.attempts > 1:
        return replace(record, attempts=record.attempts - 1, reason=None)
    return replace(record, attempts=0, reason=None, first_failure_ms=None, last_failure_ms=None)


class Rotation:
    """The assigned shards, the order of their turns, and the limits of emission. `pending`: the
    number of deliveries without an outcome.

    Not thread-safe: the caller holds the spout's lock.
    """

    def __init__(self, config: SpoutConfig) -> None:
        self.config = config
        self.assigned: dict[str, AssignedShard] = {}
        self.pending = 0
        self.is_paused = False
        self.isolation = Isolation()
        self._timeout_ms = config.message_timeout_ms
        self._new_left = config.max_records
        self._rotation: deque[AssignedShard] = deque()
        self._retry_rotation: deque[AssignedShard] = deque()
        self._due: DueQueue[str] = DueQueue()  # the shards that have retries
        self._next_due_ms = math.inf  # when the next retry is due, or earlier

    @property
    def is_full(self) -> bool:
        """Whether `max_records` new records have been emitted."""
        return self._new_left == 0

    @property
    def at_limit(self) -> bool:
        """Whether no new record may be emitted, because of `max_records` or, until there are
        outcomes, of `max_pending`.
        """
        return self.is_full or self.pending >= self.config.max_pending

    @property
    def is_idle(self) -> bool:
        """Whether all shards are at their tips or ends and no record is pending. O(shards)."""
        return not self.pending and all(
            assigned.shard.tip_ms() is not None or assigned.shard.ended
            for assigned in self.assigned.values()
        )

    def next_retry_ms(self) -> float:
        """Return when the next retry may be due; infinite without one and during a pause."""
        return math.inf if self.is_paused else self._next_due_ms

    def may_emit(self, now_ms: int) -> bool:
        """Whether `emit` may return a record. If False, it returns None."""
        isolation = self.isolation
        if isolation.waits_for_outcome:
            return isolation.phase is Phase.STORED
        if self.is_paused:
            return False
        if self._is_last_isolated():
            return isolation.phase is Phase.SETTLED
        retry_is_due = self._next_due_ms <= now_ms
        return retry_is_due or bool(self._retry_rotation if self.at_limit else self._rotation)

    # what may go out ------------------------------------------------------------------------------
    def pause(self) -> None:
        """Stop emitting until `resume`, except for an announced record, whose attempt is stored.
        Idempotent.
        """
        self.is_paused = True
        self._withdraw_grants()

    def resume(self) -> None:
        self.is_paused = False

    def isolate(self, deliveries: int) -> None:
        """Deliver one record at a time for the next `deliveries` records, or until no record is
        left.
        """
        self.isolation.begin(deliveries)
        self._withdraw_grants()

    def _withdraw_grants(self) -> None:
        for assigned in self.assigned.values():
            assigned.shard.withdraw_grant()

    # shards ---------------------------------------------------------------------------------------
    def add(self, assigned: AssignedShard) -> None:
        shard = assigned.shard
        self.assigned[shard.shard_id] = assigned
        self.pending += shard.pending
        if shard.restored.has_unanswered:
            self.isolate(0)
        self.reschedule(assigned)

    def remove(self, shard_id: str) -> AssignedShard:
        """Release a shard. Outcomes of its deliveries are ignored from now on."""
        assigned = self.assigned.pop(shard_id)
        self.pending -= assigned.shard.pending
        assigned.is_released = True
        if assigned.in_rotation:
            self._rotation.remove(assigned)
        if assigned.in_retry_rotation:
            self._retry_rotation.remove(assigned)
        self._due.discard(shard_id)
        return assigned

    def reschedule(self, assigned: AssignedShard) -> None:
        """Put the shard into its rotations. Call it after a page or a payload was added."""
        assigned.shard.refill()
        self.enqueue(assigned)

    def enqueue(self, assigned: AssignedShard) -> None:
        """Append the shard to the rotation if it may emit a new record, and note when its next
        retry is due. Call it after each outcome.
        """
        shard = assigned.shard
        if (
            not assigned.in_rotation
            and shard.open_run is not None
            and shard.pending + shard.waiting < self.config.max_unresolved_per_shard
        ):
            assigned.in_rotation = True
            self._rotation.append(assigned)
        if (due_ms := shard.tracker.next_retry_ms) is not None:
            self._due.put(shard.shard_id, due_ms)
            self._next_due_ms = min(self._next_due_ms, due_ms)

    def _enqueue_due_retries(self, now_ms: int) -> None:
        """Put the shards with a retry that is due at `now_ms` into both rotations."""
        while (shard_id := self._due.pop_due(now_ms)) is not None:
            assigned = self.assigned[shard_id]
            if not assigned.in_rotation:
                assigned.in_rotation = True
                self._rotation.append(assigned)
            if not assigned.in_retry_rotation:
                assigned.in_retry_rotation = True
                self._retry_rotation.append(assigned)
        next_ms = self._due.next_ms()
        self._next_due_ms = math.inf if next_ms is None else next_ms

    # emitting -------------------------------------------------------------------------------------
    def emit(self, now_ms: float) -> SpoutEmission | None:
        """Return the next record; None if no shard has a record that may be emitted now."""
        if self._next_due_ms <= now_ms:
            self._enqueue_due_retries(floor(now_ms))
        rotation = self._rotation
        if rotation and self.pending < self.config.max_pending:
            assigned = rotation[0]
            run = assigned.shard.open_run
            if run is not None and (index := run.emitted) < run.granted:
                # The short way for nearly all records: with the grant, the other limits were
                # checked, and that no retry waits. A pause and isolation withdraw it. The shard
                # moves to the end of the rotation without being enqueued.
                run.emitted = index + 1
                timeout_ms = self._timeout_ms
                if timeout_ms is not None:
                    run.deadlines.append(now_ms + timeout_ms)
                self.pending += 1
                assigned.counts.emitted += 1
                rotation.rotate(-1)
                return SpoutEmission(run, index, 1, run.data[index], assigned)
        return self._emit_checked(floor(now_ms))

    def _emit_checked(self, now_ms: int) -> SpoutEmission | None:
        if self.is_paused and not self.isolation.waits_for_outcome:
            return None
        timeout_ms = self._timeout_ms
        deadline_ms = None if timeout_ms is None else now_ms + timeout_ms
        if self.isolation.is_on:
            return self._emit_isolated(now_ms, deadline_ms)
        emission = self._take(now_ms, deadline_ms)
        if emission is not None:
            self.pending += 1
            self._count(emission)
            # With max_records every new record is counted, so none takes the short way.
            if self._new_left is None:
                emission.assigned.shard.grant(self.config.max_unresolved_per_shard)
        return emission

    def _take(self, now_ms: int, deadline_ms: int | None) -> SpoutEmission | None:
        """Take the next record from its shard: a due retry or, below the limit, a new record."""
        is_new = not self.at_limit
        rotation = self._rotation if is_new else self._retry_rotation
        while rotation:
            assigned = rotation.popleft()
            shard = assigned.shard
            has_room = shard.unresolved < self.config.max_unresolved_per_shard
            delivery = shard.emit(now_ms, deadline_ms, new=is_new and has_room)
            # The shard is enqueued again only if it has more records, so an idle shard leaves.
            if is_new:
                assigned.in_rotation = False
            else:
                assigned.in_retry_rotation = False
            self.enqueue(assigned)
            if delivery is not None:
                return SpoutEmission.of(assigned, delivery)
        return None

    def _count(self, emission: SpoutEmission) -> None:
        counts = emission.assigned.counts
        counts.emitted += 1
        if emission.attempt > 1:
            counts.retried += 1
        elif self._new_left is not None:
            self._new_left -= 1

    def _emit_isolated(self, now_ms: int, deadline_ms: int | None) -> SpoutEmission | None:
        """Return the announced record once its announcement is stored; None before that, and until
        it has an outcome. Then announce the next record.
        """
        isolation = self.isolation
        if isolation.waits_for_outcome:
            emission = isolation.take(deadline_ms)
            if emission is not None:
                self._count(emission)
            return emission
        if self._is_last_isolated():
            return self.emit(now_ms) if isolation.end() else None
        emission = self._take(now_ms, deadline_ms)
        if emission is not None:
            self.pending += 1
            isolation.announce(emission, now_ms)
        elif self.is_idle and not self.has_restored(now_ms) and not self._has_unanswered():
            isolation.end()
        return None

    def _is_last_isolated(self) -> bool:
        """Whether the last isolated delivery has been made."""
        return self.isolation.is_complete and not self._has_unanswered()

    def _has_unanswered(self) -> bool:
        """Whether there is a record that must be delivered in isolation. O(shards)."""
        return any(assigned.shard.restored.has_unanswered for assigned in self.assigned.values())

    # what was in flight ---------------------------------------------------------------------------
    def has_restored(self, now_ms: int) -> bool:
        """Whether a record that an earlier process may have had in flight has no outcome yet.
        O(shards).
        """
        return any(assigned.shard.restored.has_any(now_ms) for assigned in self.assigned.values())

    def marks(self) -> dict[str, SequenceNumber]:
        """Return the greatest sequence number delivered so far, or an upper bound, by shard."""
        newest = {one: assigned.shard.newest_emitted for one, assigned in self.assigned.items()}
        return {shard_id: number for shard_id, number in newest.items() if number is not None}

    def has_passed(self, marks: Mapping[str, SequenceNumber]) -> bool:
        """Whether each delivery up to these marks has an outcome."""
        oldest = {one: assigned.shard.oldest_pending for one, assigned in self.assigned.items()}
        return all(
            number is None or shard_id not in marks or marks[shard_id] < number
            for shard_id, number in oldest.items()
        )
