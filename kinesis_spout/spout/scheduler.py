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
from state.tracker.transitions import Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.spout.record_run import RecordRun
    from kinesis_spout.spout.retry_buffer import Letter
    from kinesis_spout.spout.tracked_shard import Handed, TrackedShard
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


class ShardSeat:
    """A shard's place in the spout: its records, its counts, and where it stands in the
    rotations.
    """

    __slots__ = (
        "counts",
        "due_ms",
        "in_turn",
        "in_turn_for_retries",
        "is_dirty",
        "is_left",
        "shard",
    )

    def __init__(self, shard: TrackedShard) -> None:
        self.shard = shard
        self.counts = ShardCounts()
        self.in_turn = False
        self.in_turn_for_retries = False
        self.due_ms: int | None = None
        self.is_left = False  # laid down: outcomes of its records are ignored
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


Place = tuple[ShardSeat, "RecordRun", int, int]
"""A record that was handed over: whose it is, its run, where it stands in that, and the number of
the delivery.
"""


class SpoutCore:
    """Not safe from several threads at a time: the caller holds a lock. Times in ms of one clock
    that never goes back.
    """

    def __init__(self, limits: Limits) -> None:
        self.seats: dict[str, ShardSeat] = {}
        self.past = ShardCounts()  # of shards that were laid down
        self.pending = 0
        self._max_pending = limits.max_pending  # 0 as soon as no new record may go out at all
        self._max_unresolved = limits.max_unresolved_per_shard
        self._timeout_ms = limits.message_timeout_ms
        self._max_held_bytes = limits.max_held_bytes
        self._new_left = limits.max_records
        self._turns: deque[ShardSeat] = deque()
        self._retry_turns: deque[ShardSeat] = deque()
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
        if self.past.acked or any(seat.counts.acked for seat in self.seats.values()):
            return 0
        return self.past.failed + sum(seat.counts.failed for seat in self.seats.values())

    def next_retry_ms(self) -> int | None:
        """When the next retry may be due; None when none waits."""
        return self._due[0][0] if self._due else None

    def has_turn(self, now_ms: int) -> bool:
        """Whether a shard may have a record that may go out."""
        retry_is_due = bool(self._due) and self._due[0][0] <= now_ms
        return retry_is_due or bool(self._retry_turns if self.at_limit else self._turns)

    def metrics(self, waits: WaitTimes, service_now_ms: int) -> SpoutMetrics:
        """Copies, so that they stay as they are. O(shards)."""
        shards = {
            shard_id: seat.metrics(service_now_ms) for shard_id, seat in sorted(self.seats.items())
        }
        counts = ShardCounts()
        counts.add(self.past)
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
    def add(self, shard: TrackedShard) -> ShardSeat:
        """Take a shard in. Raises ValueError for one that is there."""
        if shard.shard_id in self.seats:
            raise ValueError(f"shard {shard.shard_id} is taken up already; lay it down first")
        seat = self.seats[shard.shard_id] = ShardSeat(shard)
        self.pending += shard.pending
        self.look(seat)
        return seat

    def remove(self, shard_id: str) -> None:
        """Lay a shard down: outcomes of its records are ignored from here on."""
        seat = self.seats.pop(shard_id)
        self.pending -= seat.shard.pending
        self.past.add(seat.counts)
        seat.is_left = True
        if seat.in_turn:
            self._turns.remove(seat)
        if seat.in_turn_for_retries:
            self._retry_turns.remove(seat)

    def look(self, seat: ShardSeat) -> None:
        """A page may have come, or a retry is queued: give the shard its place."""
        seat.shard.refill()
        self._place(seat)

    # handing over
    # -------------------------------------------------------------------------------------------------
    def emit(self, now_ms: int) -> Place | None:
        """One record of the shard whose turn it is; None when none has any that may go out."""
        if self._due and self._due[0][0] <= now_ms:
            self._wake_due(now_ms)
        deadline_ms = None if self._timeout_ms is None else now_ms + self._timeout_ms
        turns = self._turns
        if self.pending >= self._max_pending:
            return self._emit_of(self._retry_turns, now_ms, deadline_ms, new=False)
        if not turns:
            return None
        seat = turns[0]
        run = seat.shard.open
        if run is None or run.emitted >= run.granted:
            return self._emit_of(turns, now_ms, deadline_ms, new=True)
        at = seat.shard.emit_new(run, deadline_ms)  # as nearly all records go
        self.pending += 1
        seat.counts.emitted += 1
        turns.rotate(-1)
        return seat, run, at, 1

    def _emit_of(
        self, turns: deque[ShardSeat], now_ms: int, deadline_ms: int | None, *, new: bool
    ) -> Place | None:
        """A retry or, where `new` allows it, a new record."""
        while turns:
            seat = turns.popleft()
            shard = seat.shard
            handed = shard.emit(
                now_ms, deadline_ms, new=new and shard.unresolved < self._max_unresolved
            )
            if new:
                seat.in_turn = False
            else:
                seat.in_turn_for_retries = False
            self._place(seat)
            if handed is not None:
                self._count(seat, is_new=handed[2] == 1)
                if self._new_left is None:
                    shard.grant(self._max_unresolved)
                return seat, *handed
        return None

    def _count(self, seat: ShardSeat, *, is_new: bool) -> None:
        self.pending += 1
        seat.counts.emitted += 1
        if not is_new:
            seat.counts.retried += 1
        elif self._new_left is not None:
            self._new_left -= 1
            if not self._new_left:
                self._max_pending = 0

    # outcomes
    # -----------------------------------------------------------------------------------------------------
    def ack(self, place: Place, now_ms: int) -> bool:
        """Whether it counted: not for what was acked, or timed out and dead-lettered, before, nor
        of a shard laid down.
        """
        seat, run, at, attempt = place
        if seat.is_left:
            return False
        shard = seat.shard
        resolved = shard.ack(run, at, attempt)
        if resolved is None:
            return False
        self.pending -= resolved
        seat.is_dirty = True
        seat.counts.on_ack(now_ms - run.arrivals[at])
        if not seat.in_turn and shard.open is not None:
            self._place(seat)
        return True

    def ack_unheld(self, seat: ShardSeat, sequence: SequenceNumber, attempt: int) -> bool:
        """A late ack by message id, which is one record's: a range that begins with that record is
        more, and comes again.
        """
        if seat.is_left or seat.shard.begins_range(sequence):
            return False
        resolved = seat.shard.ack_node(sequence, attempt)
        if resolved is None:
            return False
        self.pending -= resolved  # 1 if it has come back meanwhile, and gone out
        seat.is_dirty = True
        seat.counts.acked += 1
        self._place(seat)
        return True

    def fail(
        self,
        seat: ShardSeat,
        handed: Handed,
        now_ms: int,
        *,
        reason: str | None,
        retry: bool = True,
    ) -> Effect:
        """What came of it: QUEUED, EXHAUSTED, or that it did not count."""
        if seat.is_left:
            return Effect.UNKNOWN
        shard = seat.shard
        before = shard.pending
        keep = shard.held.held_bytes < self._held_bytes_per_shard
        effect = shard.fail(*handed, now_ms, reason=reason, retry=retry, keep=keep)
        self.pending += shard.pending - before
        if effect in {Effect.QUEUED, Effect.EXHAUSTED}:
            seat.is_dirty = True
            seat.counts.failed += 1
            self._place(seat)
        return effect

    def expire(self, now_ms: int) -> list[tuple[ShardSeat, Handed]]:
        """Fail everything that has got no outcome until its deadline."""
        expired = []
        for seat in self.seats.values():
            shard = seat.shard
            if not shard.pending or (due_ms := shard.next_deadline_ms()) is None or due_ms > now_ms:
                continue
            before = shard.pending
            late = shard.expire(now_ms, max_held_bytes=self._held_bytes_per_shard)
            self.pending += shard.pending - before
            seat.is_dirty = True
            seat.counts.timed_out += len(late)
            seat.counts.failed += len(late)
            expired += [(seat, handed) for handed in late]
            self._place(seat)
        return expired

    def next_deadline_ms(self) -> int | None:
        """When the next pending record times out; None when none can. O(shards with pending
        records).
        """
        times = (
            seat.shard.next_deadline_ms() for seat in self.seats.values() if seat.shard.pending
        )
        return min((ms for ms in times if ms is not None), default=None)

    # dead letters
    # -------------------------------------------------------------------------------------------------
    def letters(self) -> Iterator[tuple[ShardSeat, Letter]]:
        """What is to be dead-lettered now."""
        for seat in list(self.seats.values()):
            for letter in seat.shard.held.letters():
                yield seat, letter

    def dead_lettered(self, seat: ShardSeat, sequence: SequenceNumber, count: int) -> bool:
        """The letter is written. False when a late ack came first."""
        if seat.is_left or seat.shard.dead_lettered(sequence) is not Effect.ACKED:
            return False
        seat.is_dirty = True
        seat.counts.dead_lettered += count
        self._place(seat)
        return True

    @property
    def _held_bytes_per_shard(self) -> int:
        return self._max_held_bytes // max(1, len(self.seats))

    # turns
    # --------------------------------------------------------------------------------------------------------
    def _place(self, seat: ShardSeat) -> None:
        """Into the rotation, at its end, if there is something new; and into the queue of those
        whose retry is to come.
        """
        shard = seat.shard
        if (
            not seat.in_turn
            and shard.open is not None
            and shard.pending + shard.waiting < self._max_unresolved
        ):
            seat.in_turn = True
            self._turns.append(seat)
        if not shard.waiting:
            return
        due_ms = shard.tracker.next_retry_ms
        if due_ms is not None and (seat.due_ms is None or due_ms < seat.due_ms):
            seat.due_ms = due_ms
            heappush(self._due, (due_ms, shard.shard_id))

    def _wake_due(self, now_ms: int) -> None:
        """Shards whose retry is due get their turn, also where no new records may go out."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, shard_id = heappop(self._due)
            seat = self.seats.get(shard_id)
            if seat is None or seat.due_ms != due_ms:
                continue
            seat.due_ms = None
            if not seat.in_turn:
                seat.in_turn = True
                self._turns.append(seat)
            if not seat.in_turn_for_retries:
                seat.in_turn_for_retries = True
                self._retry_turns.append(seat)
