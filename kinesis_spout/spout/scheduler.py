"""All shards of a spout: whose turn it is, how much may be pending, and what came of everything.
Pure, as `tracked_shard` is.

A shard stands in the rotation while it has a record to hand over; whose buffer is empty, or whose
retry is not due yet, costs nothing until it has one. Each turn is one record. Where new records may
not go out, because `max_pending` are pending, the shards with due retries go on in a rotation of
their own.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.spout.metrics import ShardCounts, ShardMetrics, SpoutMetrics, WaitTimes
from kinesis_spout.spout.record_run import Delivery
from state.tracker.transitions import Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.spout.retry_buffer import Letter
    from kinesis_spout.spout.tracked_shard import TrackedShard
    from state.sequence_number import SequenceNumber


class Limits(NamedTuple):
    """`message_timeout_ms` None: emissions do not time out. `max_held_bytes`: payload kept for
    retries, in all.

    `max_records`: after so many, only their retries go out.
    """

    max_pending: int
    max_unresolved_per_shard: int
    message_timeout_ms: int | None
    max_held_bytes: int
    max_records: int | None = None


class AssignedShard:
    """A shard's place in the spout: its records, its counts, and where it stands in the
    rotations.
    """

    __slots__ = (
        "counts",
        "due_ms",
        "in_retry_rotation",
        "in_rotation",
        "is_dirty",
        "is_released",
        "shard",
    )

    def __init__(self, shard: TrackedShard) -> None:
        self.shard = shard
        self.counts = ShardCounts()
        self.in_rotation = False
        self.in_retry_rotation = False
        self.due_ms: int | None = None
        self.is_released = False  # laid down: outcomes of its records are ignored
        self.is_dirty = False  # its state may have changed since it was stored

    def metrics(self, service_now_ms: int) -> ShardMetrics:
        """A copy, so that it stays as it is."""
        shard = self.shard
        counts = ShardCounts()
        counts.add(self.counts)
        checkpoint = shard.tracker.checkpoint
        return ShardMetrics(
            counts=counts,
            pending=shard.pending,
            queued=shard.unresolved - shard.pending,
            lag_ms=shard.lag_ms(service_now_ms),
            checkpoint=None if checkpoint is None else str(checkpoint),
        )


class SpoutDelivery(Delivery, frozen=True, eq=False):
    """A delivery of the spout, with the assigned shard that its record is of."""

    assigned: AssignedShard

    @classmethod
    def of(cls, assigned: AssignedShard, delivery: Delivery) -> SpoutDelivery:
        return cls(delivery.run, delivery.index, delivery.attempt, assigned)

    @property
    def shard_id(self) -> str:
        return self.assigned.shard.shard_id


class SpoutScheduler:
    """Not safe from several threads at a time: the caller holds a lock. Times in ms of one clock
    that never goes back.
    """

    def __init__(self, limits: Limits) -> None:
        self.assigned: dict[str, AssignedShard] = {}
        self.released_counts = ShardCounts()  # of shards that were laid down
        self.pending = 0
        self._max_pending = limits.max_pending  # 0 as soon as no new record may go out at all
        self._max_unresolved = limits.max_unresolved_per_shard
        self._timeout_ms = limits.message_timeout_ms
        self._max_held_bytes = limits.max_held_bytes
        self._new_left = limits.max_records
        self._rotation: deque[AssignedShard] = deque()
        self._retry_rotation: deque[AssignedShard] = deque()
        self._due: list[tuple[int, str]] = []

    @property
    def at_limit(self) -> bool:
        """No new records go out until some outcomes have come."""
        return self.pending >= self._max_pending

    @property
    def is_full(self) -> bool:
        """`max_records` were handed over."""
        return self._new_left == 0

    @property
    def failures_before_first_ack(self) -> int:
        """How many have failed, as long as none was acked; 0 from the first ack on. O(shards) until
        then.
        """
        if self.released_counts.acked or any(
            assigned.counts.acked for assigned in self.assigned.values()
        ):
            return 0
        return self.released_counts.failed + sum(
            assigned.counts.failed for assigned in self.assigned.values()
        )

    def next_retry_ms(self) -> int | None:
        """When the next retry may be due; None when none waits."""
        return self._due[0][0] if self._due else None

    def may_emit(self, now_ms: int) -> bool:
        """Whether a shard may have a record that may go out."""
        retry_is_due = bool(self._due) and self._due[0][0] <= now_ms
        return retry_is_due or bool(self._retry_rotation if self.at_limit else self._rotation)

    def metrics(self, waits: WaitTimes, service_now_ms: int) -> SpoutMetrics:
        """Copies, so that they stay as they are. O(shards)."""
        shards = {
            shard_id: assigned.metrics(service_now_ms)
            for shard_id, assigned in sorted(self.assigned.items())
        }
        counts = ShardCounts()
        counts.add(self.released_counts)
        for one in shards.values():
            counts.add(one.counts)
        lags = [one.lag_ms for one in shards.values() if one.lag_ms is not None]
        total = ShardMetrics(
            counts=counts,
            pending=sum(one.pending for one in shards.values()),
            queued=sum(one.queued for one in shards.values()),
            lag_ms=max(lags, default=None),
        )
        return SpoutMetrics(
            total=total, shards=shards, waits=WaitTimes(waits.idle_s, waits.at_limit_s)
        )

    # shards
    # -------------------------------------------------------------------------------------------------------
    def add(self, shard: TrackedShard) -> AssignedShard:
        """Take a shard in. Raises ValueError for one that is there."""
        if shard.shard_id in self.assigned:
            raise ValueError(f"shard {shard.shard_id} is taken up already; lay it down first")
        assigned = self.assigned[shard.shard_id] = AssignedShard(shard)
        self.pending += shard.pending
        self.reschedule(assigned)
        return assigned

    def remove(self, shard_id: str) -> None:
        """Lay a shard down: outcomes of its records are ignored from here on."""
        assigned = self.assigned.pop(shard_id)
        self.pending -= assigned.shard.pending
        self.released_counts.add(assigned.counts)
        assigned.is_released = True
        if assigned.in_rotation:
            self._rotation.remove(assigned)
        if assigned.in_retry_rotation:
            self._retry_rotation.remove(assigned)

    def reschedule(self, assigned: AssignedShard) -> None:
        """A page may have come, or a retry is queued: give the shard its place."""
        assigned.shard.refill()
        self._enqueue(assigned)

    # handing over
    # -------------------------------------------------------------------------------------------------
    def emit(self, now_ms: int) -> SpoutDelivery | None:
        """One record of the shard whose turn it is; None when none has any that may go out."""
        if self._due and self._due[0][0] <= now_ms:
            self._enqueue_due_retries(now_ms)
        deadline_ms = None if self._timeout_ms is None else now_ms + self._timeout_ms
        rotation = self._rotation
        if self.pending >= self._max_pending:
            return self._emit_of(self._retry_rotation, now_ms, deadline_ms, new=False)
        if not rotation:
            return None
        assigned = rotation[0]
        run = assigned.shard.open
        if run is None or run.emitted >= run.granted:
            return self._emit_of(rotation, now_ms, deadline_ms, new=True)
        index = assigned.shard.emit_new(run, deadline_ms)  # as nearly all records go
        self.pending += 1
        assigned.counts.emitted += 1
        rotation.rotate(-1)
        return SpoutDelivery(run, index, 1, assigned)

    def _emit_of(
        self, rotation: deque[AssignedShard], now_ms: int, deadline_ms: int | None, *, new: bool
    ) -> SpoutDelivery | None:
        """A retry or, where `new` allows it, a new record."""
        while rotation:
            assigned = rotation.popleft()
            shard = assigned.shard
            delivery = shard.emit(
                now_ms, deadline_ms, new=new and shard.unresolved < self._max_unresolved
            )
            if new:
                assigned.in_rotation = False
            else:
                assigned.in_retry_rotation = False
            self._enqueue(assigned)
            if delivery is not None:
                self._count(assigned, is_new=delivery.attempt == 1)
                if self._new_left is None:
                    shard.grant(self._max_unresolved)
                return SpoutDelivery.of(assigned, delivery)
        return None

    def _count(self, assigned: AssignedShard, *, is_new: bool) -> None:
        self.pending += 1
        assigned.counts.emitted += 1
        if not is_new:
            assigned.counts.retried += 1
        elif self._new_left is not None:
            self._new_left -= 1
            if not self._new_left:
                self._max_pending = 0

    # outcomes
    # -----------------------------------------------------------------------------------------------------
    def ack(self, delivery: SpoutDelivery, now_ms: int) -> bool:
        """Whether it counted: not for what was acked, or timed out and dead-lettered, before, nor
        of a shard laid down.
        """
        assigned = delivery.assigned
        if assigned.is_released:
            return False
        shard = assigned.shard
        resolved = shard.ack(delivery)
        if resolved is None:
            return False
        self.pending -= resolved
        assigned.is_dirty = True
        assigned.counts.on_ack(now_ms - delivery.run.arrivals[delivery.index])
        if not assigned.in_rotation and shard.open is not None:
            self._enqueue(assigned)
        return True

    def ack_unheld(self, assigned: AssignedShard, sequence: SequenceNumber, attempt: int) -> bool:
        """A late ack by message id, which is one record's: a range that begins with that record is
        more, and comes again.
        """
        if assigned.is_released or assigned.shard.begins_range(sequence):
            return False
        resolved = assigned.shard.ack_node(sequence, attempt)
        if resolved is None:
            return False
        self.pending -= resolved  # 1 if it has come back meanwhile, and gone out
        assigned.is_dirty = True
        assigned.counts.acked += 1
        self._enqueue(assigned)
        return True

    def fail(
        self, delivery: SpoutDelivery, now_ms: int, *, reason: str | None, retry: bool = True
    ) -> Effect:
        """What came of it: QUEUED, EXHAUSTED, or that it did not count."""
        assigned = delivery.assigned
        if assigned.is_released:
            return Effect.UNKNOWN
        shard = assigned.shard
        before = shard.pending
        keep = shard.held.held_bytes < self._held_bytes_per_shard
        effect = shard.fail(delivery, now_ms, reason=reason, retry=retry, keep=keep)
        self.pending += shard.pending - before
        if effect in {Effect.QUEUED, Effect.EXHAUSTED}:
            assigned.is_dirty = True
            assigned.counts.failed += 1
            self._enqueue(assigned)
        return effect

    def expire(self, now_ms: int) -> list[SpoutDelivery]:
        """Fail everything that has got no outcome until its deadline."""
        expired: list[SpoutDelivery] = []
        for assigned in self.assigned.values():
            shard = assigned.shard
            if not shard.pending or (due_ms := shard.next_deadline_ms()) is None or due_ms > now_ms:
                continue
            before = shard.pending
            late = shard.expire(now_ms, max_held_bytes=self._held_bytes_per_shard)
            self.pending += shard.pending - before
            assigned.is_dirty = True
            assigned.counts.timed_out += len(late)
            assigned.counts.failed += len(late)
            expired += [SpoutDelivery.of(assigned, delivery) for delivery in late]
            self._enqueue(assigned)
        return expired

    def next_deadline_ms(self) -> int | None:
        """When the next pending record times out; None when none can. O(shards with pending
        records).
        """
        times = (
            assigned.shard.next_deadline_ms()
            for assigned in self.assigned.values()
            if assigned.shard.pending
        )
        return min((ms for ms in times if ms is not None), default=None)

    # dead letters
    # -------------------------------------------------------------------------------------------------
    def letters(self) -> Iterator[tuple[AssignedShard, Letter]]:
        """What is to be dead-lettered now."""
        for assigned in list(self.assigned.values()):
            for letter in assigned.shard.held.letters():
                yield assigned, letter

    def dead_lettered(self, assigned: AssignedShard, sequence: SequenceNumber, count: int) -> bool:
        """The letter is written. False when a late ack came first."""
        if assigned.is_released or assigned.shard.dead_lettered(sequence) is not Effect.ACKED:
            return False
        assigned.is_dirty = True
        assigned.counts.dead_lettered += count
        self._enqueue(assigned)
        return True

    @property
    def _held_bytes_per_shard(self) -> int:
        return self._max_held_bytes // max(1, len(self.assigned))

    # rotation
    # --------------------------------------------------------------------------------------------------------
    def _enqueue(self, assigned: AssignedShard) -> None:
        """Into the rotation, at its end, if there is something new; and into the queue of those
        whose retry is to come.
        """
        shard = assigned.shard
        if (
            not assigned.in_rotation
            and shard.open is not None
            and shard.pending + shard.waiting < self._max_unresolved
        ):
            assigned.in_rotation = True
            self._rotation.append(assigned)
        if not shard.waiting:
            return
        due_ms = shard.tracker.next_retry_ms
        if due_ms is not None and (assigned.due_ms is None or due_ms < assigned.due_ms):
            assigned.due_ms = due_ms
            heappush(self._due, (due_ms, shard.shard_id))

    def _enqueue_due_retries(self, now_ms: int) -> None:
        """Shards whose retry is due get their turn, also where no new records may go out."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, shard_id = heappop(self._due)
            assigned = self.assigned.get(shard_id)
            if assigned is None or assigned.due_ms != due_ms:
                continue
            assigned.due_ms = None
            if not assigned.in_rotation:
                assigned.in_rotation = True
                self._rotation.append(assigned)
            if not assigned.in_retry_rotation:
                assigned.in_retry_rotation = True
                self._retry_rotation.append(assigned)
