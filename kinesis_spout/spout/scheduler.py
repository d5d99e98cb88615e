"""Schedules the records of all assigned shards, and counts their outcomes. Pure: times are
arguments.

A shard is in the rotation while it has a record to emit; each turn emits one record. A shard with
an empty buffer, or with retries that are not due yet, is outside the rotation and costs nothing.
When `max_pending` records are pending, no new record goes out, but due retries do: their shards are
in a second rotation.

Careful delivery finds a record that ends its process at each delivery. Such a record comes again in
every process after it, and its attempts are never counted, because none of its deliveries has an
outcome. So after two openings in a row that ended without being closed (`UncleanStarts`), the same
records go out in the same order, but one at a time over
all shards, and each only once its shard's stored state has the delivery as a failed attempt. A
process that ends now has counted an attempt of this one record, and of no other. In the end the
record is exhausted and dead-lettered like any other.

The outcome of a careful delivery takes the place of the announced failure, so a delivery that is
answered counts once. Careful delivery ends after enough answers, or when all shards are at their
tips, once the last outcome is stored. It goes on as long as a record is left that was announced by
a process which then ended.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import floor
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kinesis_spout.errors import IllegalAckerEventError
from kinesis_spout.spout.metrics import ShardCounts, ShardMetrics, SpoutMetrics, WaitTimes
from kinesis_spout.spout.record_run import Delivery
from state.tracker.transitions import Effect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from kinesis_spout.spout.retry_buffer import DueLetter
    from kinesis_spout.spout.tracked_shard import TrackedShard
    from state.sequence_number import SequenceNumber


class Limits(NamedTuple):
    """The limits of a spout, over all its shards unless the name says otherwise.

    - `message_timeout_ms`: None for no timeout.
    - `max_held_bytes`: payload that is kept in memory for retries.
    - `max_records`: after this many new records, only their retries go out. None for no limit.
    """

    max_pending: int
    max_unresolved_per_shard: int
    message_timeout_ms: int | None
    max_held_bytes: int
    max_records: int | None = None


class EmissionBlock(msgspec.Struct):
    """What was done inside a `with emission:` block.

    - `acked`: the outcome that the emission was given, whether it counted or not; None without one.
    - `tree`: a tuple tree that was made.
    - `depth`: how many blocks of the same emission are around the one that runs.
    """

    acked: bool | None = None
    tree: Any = None
    depth: int = 0

    def answer(self, message_id: str, *, acked: bool) -> None:
        """Raises `IllegalAckerEventError` when the emission was given the other outcome before."""
        if self.acked is not None and self.acked is not acked:
            earlier, later = ("acked", "failed") if self.acked else ("failed", "acked")
            raise IllegalAckerEventError(
                f"emission {message_id} was {later} after it was {earlier} in the same `with` "
                "block, and the first outcome stands; give each emission one outcome"
            )
        self.acked = acked


class AssignedShard:
    """A shard that this spout reads: its records, its counts, its place in the rotations, and who
    takes the outcomes of its emissions.
    """

    __slots__ = (
        "blocks",
        "counts",
        "due_ms",
        "in_retry_rotation",
        "in_rotation",
        "is_dirty",
        "is_released",
        "outcomes",
        "refused_letters",
        "shard",
    )

    def __init__(self, shard: TrackedShard, outcomes: Any) -> None:
        self.shard = shard
        self.outcomes = outcomes
        # The `with emission:` blocks that run, by the delivery's number and attempt. None until
        # something is done inside: for most records nothing is, and this costs each of them.
        self.blocks: dict[tuple[str, int], EmissionBlock | None] = {}
        self.counts = ShardCounts()
        self.in_rotation = False
        self.in_retry_rotation = False
        self.due_ms: int | None = None  # of its valid entry in the scheduler's heap
        self.is_released = False  # outcomes of its deliveries are ignored from then on
        self.refused_letters = 0
        self.is_dirty = False  # its state may have changed since it was stored

    def metrics(self, service_now_ms: int) -> ShardMetrics:
        """A snapshot: later events do not change it."""
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
            refused=self.refused_letters,
        )

    def block(self, number: str, attempt: int) -> EmissionBlock | None:
        """The `with emission:` block that a delivery is in, if any."""
        key = number, attempt
        if key not in self.blocks:
            return None
        block = self.blocks[key] = self.blocks[key] or EmissionBlock()
        return block


class SpoutDelivery(Delivery, frozen=True, eq=False):
    """A delivery of the spout: as `Delivery`, with its record's assigned shard and payload.

    Made with the spout's lock held: the run lets go of a payload once its record is acked, or once
    the tracker knows it.
    """

    assigned: AssignedShard
    data: bytes

    @classmethod
    def of(cls, assigned: AssignedShard, delivery: Delivery) -> Self:
        """Of a pending delivery. Raises LookupError after its outcome."""
        run = delivery.run
        if run.data:
            data = run.data[delivery.index]
        elif (held := assigned.shard.held.get(delivery.sequence)) is not None:
            data = held.data[0]
        else:
            raise LookupError(
                f"the payload of {delivery.sequence} of {assigned.shard.shard_id} is not here"
            )
        return cls(run, delivery.index, delivery.attempt, assigned, data)

    @property
    def shard_id(self) -> str:
        return self.assigned.shard.shard_id


class CarefulDelivery:
    """A delivery from its announcement until its outcome is stored. `is_announced`: the store has
    it as a failed attempt. `is_out`: the user has it. `is_settled`: the store has its outcome.
    """

    __slots__ = ("_asked_with_outcome", "delivery", "is_announced", "is_out", "is_settled")

    def __init__(self, delivery: SpoutDelivery) -> None:
        self.delivery = delivery
        self.is_announced = False
        self.is_out = False
        self.is_settled = False
        self._asked_with_outcome: bool | None = None

    @property
    def has_outcome(self) -> bool:
        """Whether it was acked or failed, or its shard was released."""
        assigned = self.delivery.assigned
        return assigned.is_released or not assigned.shard.is_pending(self.delivery)

    @property
    def may_go_out(self) -> bool:
        return self.is_announced and not self.is_out

    def asks_for_commit(self) -> bool:
        """Whether a commit is needed now. True once for the announcement, and once for the
        outcome.
        """
        has_outcome = self.has_outcome
        is_stored = self.is_settled if has_outcome else self.is_announced
        if is_stored or self._asked_with_outcome is has_outcome:
            return False
        self._asked_with_outcome = has_outcome
        return True

    def on_commit(self, *, with_outcome: bool) -> None:
        """The state of its shard is stored, as it was with or without the outcome."""
        if with_outcome:
            self.is_settled = True
        else:
            self.is_announced = True


class SpoutScheduler:
    """The assigned shards of a spout, and the order in which their records go out.

    `new` makes its deliveries, and `outcomes` takes their outcomes (`AssignedShard`).
    Not thread-safe: the caller holds the spout's lock. Times are in ms of one clock that never goes
    back.
    """

    def __init__(
        self, limits: Limits, new: type[SpoutDelivery] | None = None, outcomes: Any = None
    ) -> None:
        self._new = new or SpoutDelivery
        self._outcomes = outcomes
        self.assigned: dict[str, AssignedShard] = {}
        self.released_counts = ShardCounts()  # of shards that are not assigned any more
        self.pending = 0
        self._max_pending = limits.max_pending  # set to 0 when max_records are out
        self._careful_left: int | None = None  # answers until the spout is careful no more
        self.careful: CarefulDelivery | None = None  # the last that was announced
        self._ends_when_settled = False
        # Below this many pending records `emit` needs no further check: 0 while it is careful, and
        # during a pause.
        self._unchecked_pending = limits.max_pending
        self._max_unresolved = limits.max_unresolved_per_shard
        self._timeout_ms = limits.message_timeout_ms
        self._max_held_bytes = limits.max_held_bytes
        self.is_paused = False
        self._new_left = limits.max_records
        self._rotation: deque[AssignedShard] = deque()
        self._retry_rotation: deque[AssignedShard] = deque()
        # A heap of (due_ms, shard_id). An entry that differs from its shard's `due_ms` is stale.
        self._due: list[tuple[int, str]] = []

    @property
    def at_limit(self) -> bool:
        """Whether `max_pending` is reached: no new record goes out until there are outcomes."""
        return self.pending >= self._max_pending

    @property
    def is_full(self) -> bool:
        """Whether `max_records` new records were emitted."""
        return self._new_left == 0

    @property
    def failures_before_first_ack(self) -> int:
        """How many deliveries failed before the first ack; 0 after it. O(shards) until then."""
        if self.released_counts.acked or any(
            assigned.counts.acked for assigned in self.assigned.values()
        ):
            return 0
        return self.released_counts.failed + sum(
            assigned.counts.failed for assigned in self.assigned.values()
        )

    def next_retry_ms(self) -> int | None:
        """When the next retry may be due; None without one, and during a pause."""
        return self._due[0][0] if self._due and not self.is_paused else None

    @property
    def emitted(self) -> int:
        """How many deliveries were handed out. O(shards)."""
        return self.released_counts.emitted + sum(
            assigned.counts.emitted for assigned in self.assigned.values()
        )

    @property
    def answered(self) -> int:
        """How many deliveries were acked or failed by the program. O(shards)."""
        counts = [self.released_counts, *(one.counts for one in self.assigned.values())]
        return sum(one.acked + one.failed - one.timed_out for one in counts)

    @property
    def resolved(self) -> int:
        """How many records were acked or dead-lettered. O(shards)."""
        counts = [self.released_counts, *(one.counts for one in self.assigned.values())]
        return sum(one.acked + one.dead_lettered for one in counts)

    @property
    def is_idle(self) -> bool:
        """Whether all shards are at their tips or ends, and nothing is pending. O(shards)."""
        return not self.pending and all(
            assigned.shard.tip_ms() is not None or assigned.shard.ended
            for assigned in self.assigned.values()
        )

    def may_emit(self, now_ms: int) -> bool:
        """Whether `emit` may have a record. False means that it has none."""
        if self.careful is not None and not self.careful.has_outcome:
            return self.careful.may_go_out
        if self.is_paused:
            return False
        if self.careful is not None and self._ends_when_settled:
            return self.careful.is_settled
        retry_is_due = bool(self._due) and self._due[0][0] <= now_ms
        return retry_is_due or bool(self._retry_rotation if self.at_limit else self._rotation)

    def metrics(self, waits: WaitTimes, service_now_ms: int) -> SpoutMetrics:
        """A snapshot of all counts: later events do not change it. O(shards)."""
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
            refused=sum(one.refused for one in shards.values()),
        )
        return SpoutMetrics(
            total=total, shards=shards, waits=WaitTimes(waits.idle_s, waits.at_limit_s)
        )

    # pause ----------------------------------------------------------------------------------------
    def pause(self) -> None:
        """Emit nothing until `resume`, but for a record that was announced: its attempt is stored.
        Idempotent.
        """
        self.is_paused = True
        self._unchecked_pending = 0

    def resume(self) -> None:
        self.is_paused = False
        if not self.is_careful:
            self._unchecked_pending = self._max_pending

    # shards ---------------------------------------------------------------------------------------
    def add(self, shard: TrackedShard) -> AssignedShard:
        """Assign a shard. Raises ValueError for one that is assigned already."""
        if shard.shard_id in self.assigned:
            raise ValueError(f"shard {shard.shard_id} is assigned already; release it first")
        assigned = self.assigned[shard.shard_id] = AssignedShard(shard, self._outcomes)
        self.pending += shard.pending
        if shard.has_unanswered:
            self.begin_careful(0)
        self.reschedule(assigned)
        return assigned

    def remove(self, shard_id: str) -> None:
        """Release a shard. Outcomes of its deliveries are ignored from now on."""
        assigned = self.assigned.pop(shard_id)
        self.pending -= assigned.shard.pending
        self.released_counts.add(assigned.counts)
        assigned.is_released = True
        if assigned.in_rotation:
            self._rotation.remove(assigned)
        if assigned.in_retry_rotation:
            self._retry_rotation.remove(assigned)

    def reschedule(self, assigned: AssignedShard) -> None:
        """Put the shard into the rotations it belongs to. Call it after a page or a payload was
        added.
        """
        assigned.shard.refill()
        self._enqueue(assigned)

    # emitting -------------------------------------------------------------------------------------
    def emit(self, now_ms: float) -> SpoutDelivery | None:
        """The next record; None when no shard has one that may go out now."""
        if self._due and self._due[0][0] <= now_ms:
            self._enqueue_due_retries(now_ms)
        rotation = self._rotation
        if rotation and self.pending < self._unchecked_pending:
            assigned = rotation[0]
            run = assigned.shard.open_run
            if run is not None and (index := run.emitted) < run.granted:
                # The short way, for nearly all records: `grant` has checked the limits and that no
                # retry waits. The shard stays in the rotation, at its end, so it is not enqueued
                # again.
                run.emitted = index + 1
                if self._timeout_ms is not None:
                    run.deadlines.append(now_ms + self._timeout_ms)
                self.pending += 1
                assigned.counts.emitted += 1
                rotation.rotate(-1)
                return self._new(run, index, 1, assigned, run.data[index])
        return self._emit_checked(floor(now_ms))

    def _emit_checked(self, now_ms: int) -> SpoutDelivery | None:
        if self.is_paused and (self.careful is None or self.careful.has_outcome):
            return None
        deadline_ms = None if self._timeout_ms is None else now_ms + self._timeout_ms
        if self.pending < self._unchecked_pending:
            return self._emit_of(self._rotation, now_ms, deadline_ms, new=True)
        if self._careful_left is not None:
            return self._emit_carefully(now_ms, deadline_ms)
        return self._emit_of(self._retry_rotation, now_ms, deadline_ms, new=False)

    def _emit_of(
        self, rotation: deque[AssignedShard], now_ms: int, deadline_ms: int | None, *, new: bool
    ) -> SpoutDelivery | None:
        """The next record of a rotation: a due retry, or a new record where `new` allows it."""
        delivery = self._take_of(rotation, now_ms, deadline_ms, new=new)
        if delivery is not None:
            self.pending += 1
            self._count(delivery)
            # With max_records every new record is counted, so none takes the short way.
            if self._new_left is None:
                delivery.assigned.shard.grant(self._max_unresolved)
        return delivery

    def _take_of(
        self, rotation: deque[AssignedShard], now_ms: int, deadline_ms: int | None, *, new: bool
    ) -> SpoutDelivery | None:
        while rotation:
            assigned = rotation.popleft()
            shard = assigned.shard
            delivery = shard.emit(
                now_ms, deadline_ms, new=new and shard.unresolved < self._max_unresolved
            )
            # Enqueued again only if it has more, so that an idle shard leaves the rotation.
            if new:
                assigned.in_rotation = False
            else:
                assigned.in_retry_rotation = False
            self._enqueue(assigned)
            if delivery is not None:
                return self._new.of(assigned, delivery)
        return None

    def _count(self, delivery: SpoutDelivery) -> None:
        counts = delivery.assigned.counts
        counts.emitted += 1
        if delivery.attempt > 1:
            counts.retried += 1
        elif self._new_left is not None:
            self._new_left -= 1
            if not self._new_left:
                # `emit` then allows retries only, without another check.
                self._max_pending = self._unchecked_pending = 0

    # careful delivery -----------------------------------------------------------------------------
    @property
    def is_careful(self) -> bool:
        return self._careful_left is not None

    def begin_careful(self, records: int) -> None:
        """Deliver carefully until `records` more were answered, or nothing is left to deliver."""
        self._careful_left = max(records, self._careful_left or 0)
        self._ends_when_settled = False
        self._unchecked_pending = 0

    def withdraw(self) -> None:
        """Take the announced attempt back, as at an orderly end: no outcome was due to a crash."""
        if self.careful is not None and not self.careful.has_outcome:
            assigned = self.careful.delivery.assigned
            assigned.shard.withdraw()
            assigned.is_dirty = True

    def has_restored(self, now_ms: int) -> bool:
        """Whether a record that an earlier process may have had in flight has had no outcome here.
        O(shards).
        """
        return any(assigned.shard.has_restored(now_ms) for assigned in self.assigned.values())

    def marks(self) -> dict[str, SequenceNumber]:
        """By shard, a number that no delivery so far lies above."""
        newest = {one: assigned.shard.newest_emitted for one, assigned in self.assigned.items()}
        return {shard_id: number for shard_id, number in newest.items() if number is not None}

    def has_passed(self, marks: Mapping[str, SequenceNumber]) -> bool:
        """Whether each delivery before these marks has had an outcome."""
        oldest = {one: assigned.shard.oldest_pending for one, assigned in self.assigned.items()}
        return all(
            number is None or shard_id not in marks or marks[shard_id] < number
            for shard_id, number in oldest.items()
        )

    def _emit_carefully(self, now_ms: int, deadline_ms: int | None) -> SpoutDelivery | None:
        """The announced record once it is stored. None before that, and until it has an outcome;
        then the next one is announced.
        """
        careful = self.careful
        if careful is not None and not careful.has_outcome:
            if not careful.may_go_out:
                return None
            careful.is_out = True
            self._careful_left = max(0, (self._careful_left or 0) - 1)
            careful.delivery.assigned.shard.extend(careful.delivery, deadline_ms)
            self._count(careful.delivery)
            return careful.delivery
        if not self._careful_left and not self._has_unanswered():
            return self.emit(now_ms) if self._end_careful() else None
        rotation = self._retry_rotation if self.at_limit else self._rotation
        delivery = self._take_of(rotation, now_ms, deadline_ms, new=not self.at_limit)
        if delivery is not None:
            delivery.assigned.shard.announce(delivery, now_ms)
            delivery.assigned.is_dirty = True
            self.pending += 1
            self.careful = CarefulDelivery(delivery)
            self._ends_when_settled = False
        elif self.is_idle and not self.has_restored(now_ms) and not self._has_unanswered():
            self._end_careful()
        return None

    def _has_unanswered(self) -> bool:
        """Whether a record is left that must be delivered carefully. O(shards)."""
        return any(assigned.shard.has_unanswered for assigned in self.assigned.values())

    def _end_careful(self) -> bool:
        """Deliver at full speed again, once the last outcome is stored: else a crash would cost the
        record of that outcome an attempt.
        """
        self._ends_when_settled = self.careful is not None and not self.careful.is_settled
        if self._ends_when_settled:
            return False
        self.careful = self._careful_left = None
        self._unchecked_pending = self._max_pending
        return True

    # outcomes -------------------------------------------------------------------------------------
    def ack(self, delivery: SpoutDelivery, now_ms: float) -> bool:
        """Whether the ack counted. It does not for a record that is acked already or dead-lettered,
        nor for a shard that was released.
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
        assigned.counts.on_ack(floor(now_ms - delivery.run.arrivals[delivery.index]))
        # The shard left the rotation if it was at max_unresolved_per_shard; now it has room.
        if not assigned.in_rotation and shard.open_run is not None:
            self._enqueue(assigned)
        return True

    def ack_unheld(self, assigned: AssignedShard, sequence: SequenceNumber, attempt: int) -> bool:
        """Ack a record by its message id while its payload is not in memory. Returns whether it
        counted.

        A message id names one record. If the record is the first of a range that has one outcome
        for all, the ack does not count, and the range is delivered again.
        """
        if assigned.is_released or assigned.shard.begins_range(sequence):
            return False
        resolved = assigned.shard.ack_node(sequence, attempt)
        if resolved is None:
            return False
        # 0 for a queued record. 1 if it was read again and delivered since the caller looked.
        self.pending -= resolved
        assigned.is_dirty = True
        assigned.counts.acked += 1
        self._enqueue(assigned)
        return True

    def fail(
        self, delivery: SpoutDelivery, now_ms: int, *, reason: str | None, retry: bool = True
    ) -> Effect:
        """Fail a delivery. Returns QUEUED or EXHAUSTED, or another effect when it did not count."""
        assigned = delivery.assigned
        if assigned.is_released:
            return Effect.UNKNOWN
        shard = assigned.shard
        before = shard.pending
        effect = shard.fail(
            delivery,
            now_ms,
            reason=reason,
            retry=retry,
            max_held_bytes=self._held_bytes_per_shard,
        )
        self.pending += shard.pending - before
        if effect in {Effect.QUEUED, Effect.EXHAUSTED}:
            assigned.is_dirty = True
            assigned.counts.failed += 1
            self._enqueue(assigned)
        return effect

    def expire(self, now_ms: int) -> list[SpoutDelivery]:
        """Fail all deliveries whose deadline is `now_ms` or earlier. Returns them."""
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
            expired += [self._new.of(assigned, delivery) for delivery in late]
            self._enqueue(assigned)
        return expired

    def next_deadline_ms(self) -> int | None:
        """When the next delivery times out; None when none can. O(shards with pending records)."""
        times = (
            assigned.shard.next_deadline_ms()
            for assigned in self.assigned.values()
            if assigned.shard.pending
        )
        return min((ms for ms in times if ms is not None), default=None)

    # dead letters ---------------------------------------------------------------------------------
    def letters(self) -> Iterator[tuple[AssignedShard, DueLetter]]:
        """The exhausted records that can be dead-lettered now."""
        for assigned in list(self.assigned.values()):
            for letter in assigned.shard.held.letters():
                yield assigned, letter

    def dead_lettered(self, assigned: AssignedShard, sequence: SequenceNumber, count: int) -> bool:
        """The letter was written: the record counts as acked. False when a late ack came first."""
        if assigned.is_released or assigned.shard.dead_lettered(sequence) is not Effect.ACKED:
            return False
        assigned.is_dirty = True
        assigned.counts.dead_lettered += count
        self._enqueue(assigned)
        return True

    def letter_refused(self, assigned: AssignedShard, sequence: SequenceNumber) -> None:
        """The sink refused a letter. Its payload makes room if another one waits for room."""
        shards = [one.shard for one in self.assigned.values()]
        is_short = self.letter_room_bytes() <= 0 and any(one.held.lacks_letter for one in shards)
        assigned.shard.held.refuse(sequence, drop=is_short)

    def room_bytes(self) -> int:
        """How many bytes of payload may still be kept for retries and letters. O(shards).

        Payloads that are kept are not read again, so room always comes back when they are resolved.
        """
        return self._max_held_bytes - sum(
            assigned.shard.held.held_bytes for assigned in self.assigned.values()
        )

    def letter_room_bytes(self) -> int:
        """How many bytes of payload may still be kept for letters. O(shards)."""
        letter_bytes = sum(assigned.shard.held.letter_bytes for assigned in self.assigned.values())
        return min(self.room_bytes(), self._max_held_bytes // 2 - letter_bytes)

    @property
    def _held_bytes_per_shard(self) -> int:
        return self._max_held_bytes // max(1, len(self.assigned))

    # private --------------------------------------------------------------------------------------
    def _enqueue(self, assigned: AssignedShard) -> None:
        """Append the shard to the rotation if it may emit a new record, and to the heap of due
        times if a retry waits.
        """
        shard = assigned.shard
        if (
            not assigned.in_rotation
            and shard.open_run is not None
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

    def _enqueue_due_retries(self, now_ms: float) -> None:
        """Put the shards whose retry is due at `now_ms` into both rotations."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, shard_id = heappop(self._due)
            assigned = self.assigned.get(shard_id)
            # The shard was released, or an earlier retry was queued since.
            if assigned is None or assigned.due_ms != due_ms:
                continue
            assigned.due_ms = None
            if not assigned.in_rotation:
                assigned.in_rotation = True
                self._rotation.append(assigned)
            if not assigned.in_retry_rotation:
                assigned.in_retry_rotation = True
                self._retry_rotation.append(assigned)
