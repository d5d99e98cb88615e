"""One shard of the standalone spout: its records from the buffer to their outcomes. Pure: times are
arguments, in ms since 1970.

New records go out in runs, whose acks cost next to nothing. The tracker learns of a run when it
matters: its records are all acked and nothing before them is open, one of them fails or times out,
or the shard's state is wanted. A run is registered only after those before it, stretches of acked
records as one node each, so the tracker has every record in the shard's order.

A record that failed is kept in memory for its retry as long as there is room (`HeldRecords`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.spout.page_runs import PageRuns
from kinesis_spout.spout.record_run import ACKED, Delivery, RecordRun
from kinesis_spout.spout.retry_buffer import HeldRecords
from state.tracker.inflight_record_tracker import InflightRecordTracker
from state.tracker.transitions import Effect, NodeState

if TYPE_CHECKING:
    from random import Random

    from kinesis_spout.spout.page_runs import PageSource
    from state.retry_policy import RetryPolicy
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState, UnresolvedRecord

RETRIES_IN_A_ROW = 4  # then a new record has its turn: retries go first, but starve nothing


class TrackedShard:
    """Not safe from several threads at a time: the caller holds a lock. `pages` None: only what is
    unresolved is left to do.
    """

    def __init__(
        self,
        state: ShardState,
        *,
        retry_policy: RetryPolicy,
        random: Random,
        pages: PageSource | None,
    ) -> None:
        self.tracker = InflightRecordTracker(state, retry_policy=retry_policy, random=random)
        self.shard_id = state.shard_id
        self.waiting = 0  # queued for their retry, or exhausted
        self.held = HeldRecords(self.tracker)
        self.pages = PageRuns(pages)
        self._runs: deque[RecordRun] = deque()  # not registered yet
        self._unacked = 0  # records of these, handed over or not
        self.open: RecordRun | None = None  # the last of them, while it has more to hand over
        self._retries_in_a_row = 0
        self._recount()
        self._verified_ms = state.verified_until_ms

    # what holds now
    # -----------------------------------------------------------------------------------------------
    @property
    def ended(self) -> bool:
        """The shard's end was read, and every record before it has had an outcome: those that
        continue it may begin.
        """
        return self.tracker.read_position.is_end

    @property
    def pending(self) -> int:
        """Records that were handed over and have no outcome yet."""
        at_hand = 0 if self.open is None else self.open.size - self.open.emitted
        return self.tracker.count(NodeState.PENDING) + self._unacked - at_hand

    @property
    def unresolved(self) -> int:
        """Records that are pending, queued for their retry, or exhausted."""
        return self.pending + self.waiting

    def next_deadline_ms(self) -> int | None:
        """When the next pending record times out; None when none can. O(runs)."""
        times = [run.next_deadline_ms() for run in self._runs]
        return min(
            (ms for ms in [*times, self.tracker.next_deadline_ms] if ms is not None), default=None
        )

    # handing over
    # -------------------------------------------------------------------------------------------------
    def emit(self, now_ms: int, deadline_ms: int | None, *, new: bool) -> Delivery | None:
        """The next record: a due retry first, but after a few of these a new one, where `new`
        allows it. None without any.
        """
        run = self.open if new else None
        takes_turns = run is not None and self._retries_in_a_row >= RETRIES_IN_A_ROW
        if (
            self.waiting
            and not takes_turns
            and (delivery := self._emit_retry(now_ms, deadline_ms)) is not None
        ):
            self._retries_in_a_row += 1
            return delivery
        self._retries_in_a_row = 0
        return None if run is None else Delivery(run, self.emit_new(run, deadline_ms), 1)

    def emit_new(self, run: RecordRun, deadline_ms: int | None) -> int:
        """Hand over the next record of the `open` run, which is that run's n-th."""
        at = run.emitted
        run.emitted = emitted = at + 1
        if deadline_ms is not None:
            run.deadlines.append(deadline_ms)
        if emitted == run.size:
            self.open = None
            self.refill()
        return at

    def grant(self, max_unresolved: int) -> None:
        """Let new records go out without another look at the rest, up to that limit, if no retry
        waits and none was the last.
        """
        if self.open is not None and not self.waiting and not self._retries_in_a_row:
            self.open.granted = min(
                self.open.size, self.open.emitted + max_unresolved - self.pending
            )

    def refill(self) -> None:
        """Go on to the next records of the buffer, and over pages without any. Call it when a page
        may have come.
        """
        if self.open is not None:
            return
        self.open = run = self.pages.next_run()
        if run is not None:
            self._unacked += run.size
            self._runs.append(run)
        elif self.pages.is_at_end:
            while self._runs:
                self._register_first()

    # outcomes
    # -----------------------------------------------------------------------------------------------------
    def ack(self, delivery: Delivery) -> int | None:
        """How many fewer are pending: 1, or 0 when a late ack took the record from the queue. None:
        it did not count.
        """
        run = delivery.run
        if run.registered:
            return self.ack_node(delivery.sequence, delivery.attempt)
        states, index = run.states, delivery.index
        if states[index]:
            return None  # acked before
        states[index] = ACKED
        self._unacked -= 1
        run.unacked = unacked = run.unacked - 1
        if not unacked:
            self._register_acked()
        return 1

    def ack_node(self, sequence: SequenceNumber, attempt: int) -> int | None:
        """As `ack`, of a record that the tracker knows, in memory or not."""
        before = self.tracker.count(NodeState.PENDING)
        effect = self.tracker.ack(sequence, attempt)
        self._recount()
        if effect is not Effect.ACKED:
            return None
        self.held.drop(sequence)
        return before - self.tracker.count(NodeState.PENDING)

    def fail(
        self,
        delivery: Delivery,
        now_ms: int,
        *,
        reason: str | None,
        retry: bool = True,
        keep: bool = True,
    ) -> Effect:
        """Without `retry` it is exhausted at once. `keep`: there is room to keep its payload in
        memory.
        """
        run = delivery.run
        if not run.registered:
            if run.states[delivery.index] == ACKED:
                return Effect.UNKNOWN
            self._register_through(run)
        sequence = delivery.sequence
        effect = self.tracker.fail(sequence, delivery.attempt, now_ms, reason=reason, retry=retry)
        self._recount()
        if effect is Effect.QUEUED and not keep:
            self.held.drop(sequence)
        return effect

    def expire(self, now_ms: int, *, max_held_bytes: int) -> list[Delivery]:
        """Fail what has got no outcome until its deadline; what that was, in the order of the
        deadlines.

        Of what is queued by it, as much is kept in memory as there is room for.
        """
        due = [
            run for run in self._runs if (ms := run.next_deadline_ms()) is not None and ms <= now_ms
        ]
        if due:
            self._register_through(due[-1])
        expired = self.tracker.expire(now_ms)
        self._recount()
        late = [
            Delivery(run, 0, one.attempt)
            for one in expired
            if (run := self.held.get(one.sequence)) is not None
        ]
        for one in reversed(expired):
            if self.held.held_bytes <= max_held_bytes:
                break
            if self.tracker.queued(one.sequence) is not None:
                self.held.drop(one.sequence)
        return late

    def extend(self, delivery: Delivery, deadline_ms: int | None) -> bool:
        """Let a pending record time out at another time (None: never). False when that attempt is
        not pending.
        """
        run = delivery.run
        if not run.registered:
            if run.states[delivery.index] == ACKED:
                return False
            self._register_through(run)
        return self.tracker.extend(delivery.sequence, delivery.attempt, deadline_ms)

    def find(self, sequence: SequenceNumber, attempt: int) -> Delivery | None:
        """What a message id names, where its payload is in memory."""
        for run in self._runs:
            if (
                attempt == 1
                and not sequence.sub
                and (index := run.index_of(sequence.sequence)) is not None
            ):
                return Delivery(run, index, 1)
        held = self.held.get(sequence)
        return None if held is None or held.size > 1 else Delivery(held, 0, attempt)

    def begins_range(self, sequence: SequenceNumber) -> bool:
        """Whether the tracker knows the record as the first of several that have one outcome."""
        known = (
            self.tracker.queued(sequence),
            *(one for one in self.tracker.exhausted if one.first == sequence),
        )
        return any(one is not None and one.count > 1 for one in known)

    def restock(self, record: UnresolvedRecord, found: RecordRun | None, now_ms: int) -> None:
        """See `HeldRecords.restock`."""
        self.held.restock(record, found, now_ms)
        self._recount()

    # dead letters
    # -------------------------------------------------------------------------------------------------
    def dead_lettered(self, sequence: SequenceNumber) -> Effect:
        """The letter is written: the record counts as acked. Unknown when a late ack came first."""
        effect = self.tracker.dead_lettered(sequence)
        self._recount()
        self.held.drop(sequence)
        return effect

    # the state
    # ----------------------------------------------------------------------------------------------------
    def tip_ms(self) -> int | None:
        """The service's time when the shard was at its tip, or its end, if all that was read is
        handed over; else None.
        """
        return self.pages.tip_ms if self.open is None else None

    def lag_ms(self, service_now_ms: int) -> int | None:
        """How far what was handed over is behind the service's time, in ms of arrival time; 0 at
        the tip, None when unknown.
        """
        if self.tip_ms() is not None:
            return 0
        if self._runs and self._runs[-1].emitted:
            return max(0, service_now_ms - self._runs[-1].arrivals[self._runs[-1].emitted - 1])
        return None if self._verified_ms is None else max(0, service_now_ms - self._verified_ms)

    def snapshot(self) -> ShardState:
        """The state to store."""
        acked = [run for run in self._runs if run.has_acked]
        if acked:
            self._register_through(acked[-1])
        at_tip = not self.pending and self.tip_ms() is not None
        self._verify(self._oldest_pending_ms() if self.pending else self.tip_ms())
        state = self.tracker.snapshot()
        all_told = state.read_position == self.tracker.read_position and not any(
            map(_is_first_delivery, state.unresolved)
        )
        if self.pages.is_at_end and not self._runs and not self.ended and all_told:
            self.tracker.reach_end()
            state = self.tracker.snapshot()
        return replace(state, verified_until_ms=self._verified_ms, at_tip=at_tip and not self.ended)

    # how
    # ----------------------------------------------------------------------------------------------------------
    def _verify(self, until_ms: int | None) -> None:
        """Nothing that arrived until then can be missed by who goes on from the state: all of it
        was read and is told there.
        """
        if until_ms is not None:
            self._verified_ms = max(self._verified_ms or 0, until_ms)

    def _oldest_pending_ms(self) -> int | None:
        runs = [run.arrivals[at] for run in self._runs if (at := run.oldest_pending()) is not None]
        held_ms = self.held.oldest_arrival_ms()
        return min(runs if held_ms is None else [*runs, held_ms], default=None)

    def _emit_retry(self, now_ms: int, deadline_ms: int | None) -> Delivery | None:
        due_ms = self.tracker.next_retry_ms
        if due_ms is None or due_ms > now_ms:
            return None
        sequence = self.held.due_retry(now_ms)
        run = None if sequence is None else self.held.get(sequence)
        if sequence is None or run is None:
            return None
        emission = self.tracker.retry(sequence, deadline_ms=deadline_ms)
        self._recount()
        return Delivery(run, 0, emission.attempt)

    def _recount(self) -> None:
        """The tracker has changed."""
        self.waiting = self.tracker.count(NodeState.QUEUED) + self.tracker.count(
            NodeState.EXHAUSTED
        )
        if self.waiting and self.open is not None:
            self.open.granted = 0

    def _register_acked(self) -> None:
        runs = self._runs
        while runs and not runs[0].unacked:
            self._register_first()

    def _register_through(self, last: RecordRun) -> None:
        while not last.registered:
            run = self._runs[0]
            if run is self.open:
                self.open = run.cut()
                self._runs.append(self.open)
            self._register_first()

    def _register_first(self) -> None:
        """It leaves the line only when the tracker has all of it: what an interrupt stops half-way
        is an error the next time.
        """
        run = self._runs[0]
        for state, places in run.stretches():
            first, last = run.sequence(places[0]), run.sequence(places[-1])
            if state == ACKED:
                self._verify(
                    run.arrivals[places[-1]] if not self.tracker.count(NodeState.PENDING) else None
                )
                self.tracker.emit_span(first, last, len(places))
                self.tracker.ack(first, 1)
                continue
            for at in places:
                sequence = run.sequence(at)
                self.tracker.emit(
                    sequence, deadline_ms=run.deadlines[at] if run.deadlines else None
                )
                self.held.hold(sequence, run.single(at))
        self._unacked -= run.unacked
        run.registered = True
        self._runs.popleft()


def _is_first_delivery(record: UnresolvedRecord) -> bool:
    return record.attempts == 0 and not record.rejected
