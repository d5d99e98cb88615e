"""The spout's monitor: all state that the threads of a spout share, and the lock that guards it.

Each method of `SpoutScheduler` is one step: it takes the lock and wakes waiting threads. The
threads and the methods that they call:

| thread | calls |
| --- | --- |
| of the program, one at a time | `emit`, `wait` |
| any of the program | `resolve`, `record_failure`, `extend`, `find`, `answer_unheld` |
| fetch | `reschedule`, after a page has arrived |
| timeouts | `expire` |
| retries | `wanted`, `restock` |
| letters | `letters`, `dead_lettered`, `letter_refused` |
| commit | snapshots of the shards; `remove` |
| coordinate | `add`, `remove`; `pause` and `resume` of the rotation |

A thread that needs several steps to be atomic holds `changed` around them: the coordinator, which
pauses the rotation and assigns shards; the committer, which snapshots all shards; the prefetcher,
whose buffers are created and closed with the shards; and the sender of letters. The lock is
reentrant, so these threads call the same methods.

`changed` guards everything that `assigned` leads to (the shards with their trackers, runs and
payloads), the rotation, the isolation, and the counts. No I/O is done and no listener is called
while it is held. Lock order: the catalog's lock, which guards the stored states, is taken before
`changed`, never after it. The locks of the buffers, the outages and the acker are innermost: a
thread that holds one of them takes no other lock.
"""

from __future__ import annotations

import threading
from math import floor
from typing import TYPE_CHECKING

from kinesis_spout.acker import Acker
from kinesis_spout.errors import ConfigError, KinesisError, reason_text, text_of
from kinesis_spout.spout.emission import COUNTED_FAILURES, AssignedShard, SpoutEmission
from kinesis_spout.spout.listener import SpoutNotifier
from kinesis_spout.spout.metrics import ShardCounts, ShardMetrics
from kinesis_spout.spout.rotation import Rotation
from kinesis_spout.tuple_tree import TupleTree, fail_timed_out
from state.tracker.transitions import Effect

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.tracked_shard import RecordRun, TrackedShard
    from state.sequence_number import SequenceNumber
    from state.shard_state import UnresolvedRecord


class NothingAckedError(KinesisError):
    """Many records failed and none was ever acked, so the fault is not in the records."""


class SpoutTrees:
    """The tuple trees of a spout's emissions. It passes the outcomes of the trees to the scheduler
    (`kinesis_spout.tuple_tree.Outcomes`). For any thread.
    """

    def __init__(self, scheduler: SpoutScheduler, random: Random | None) -> None:
        self._scheduler = scheduler
        self._acker: Acker[TupleTree] = Acker(random)
        # The emissions without an outcome, with their trees, by message id.
        self.open: dict[str, tuple[SpoutEmission, tuple[TupleTree, ...]]] = {}

    def begin(self, emission: SpoutEmission) -> TupleTree:
        """Begin the tree of an emission. The tree times out together with its emission, because a
        later outcome would not count.
        """
        scheduler = self._scheduler
        with scheduler.changed:
            shard, now_ms = emission.assigned.shard, int(scheduler.now_ms())
            deadline_ms = shard.deadline_ms(emission, now_ms)
        tree = TupleTree(self._acker, emission.message_id, self, deadline_ms=deadline_ms)
        _, others = self.open.get(emission.message_id, (emission, ()))
        self.open[emission.message_id] = emission, (*others, tree)
        return tree

    def end(self, message_id: str) -> SpoutEmission | None:
        """Forget the trees of an emission that has an outcome. Returns the emission; None if its
        trees were forgotten before.
        """
        emission, trees = self.open.pop(message_id, (None, ()))
        for tree in trees:
            tree.withdraw()
        return emission

    def on_extended(self, message_id: str, deadline_ms: int | None) -> None:
        """Move the deadlines of an emission's trees."""
        _, trees = self.open.get(message_id, (None, ()))
        for tree in trees:
            self._acker.extend(tree.root, deadline_ms)

    def expire(self, now_ms: int) -> int | None:
        """Fail the emissions of the trees that have timed out. Returns the next deadline."""
        fail_timed_out(self._acker, now_ms)
        return self._acker.next_deadline_ms()

    # These call the scheduler, not the emission's own methods: those would take the outcome of a
    # tree that times out for an outcome of the program's `with` block. If an emission has two
    # trees, the first outcome counts.
    def ack(self, message_id: str) -> None:
        if (emission := self.end(message_id)) is not None:
            self._scheduler.resolve(emission)

    def fail(self, message_id: str, *, reason: str | None = None, retry: bool = True) -> None:
        if (emission := self.end(message_id)) is not None:
            self._scheduler.record_failure(emission, reason, retry=retry)

    def extend(self, message_id: str, timeout_s: float | None) -> bool:
        found = self.open.get(message_id)
        return found is not None and self._scheduler.extend(found[0], timeout_s)


class SpoutScheduler:
    """The spout's monitor. The module's docstring lists the threads, the calls and the locks.

    - `now_ms`: the spout's steady clock, in ms since 1970.
    - `wake`: wakes the thread with this name.
    - `error`: the error that has stopped the spout, if any; the next request for a record raises
      it.
    - `check_owner`: raises if another process has taken over and so has the next records. No
      process can take over within half a session time-out after a request for a record.
    """

    def __init__(
        self,
        config: SpoutConfig,
        now_ms: Callable[[], float],
        *,
        hooks: SpoutNotifier | None = None,
        wake: Callable[[str], None] = lambda _loop: None,
        check_owner: Callable[[], None] = lambda: None,
        random: Random | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.stream_name = config.stream_ref.name
        # Reentrant for callers that hold it around several steps, and because `emit` relies on an
        # error when a thread releases the lock without holding it.
        self.changed = threading.Condition(threading.RLock())
        self.rotation = Rotation(config)
        self.trees = SpoutTrees(self, random)
        self.released_counts = ShardCounts()  # the counts of released shards
        self.error: Exception | None = None
        self._is_closed = False
        self._hooks = SpoutNotifier(()) if hooks is None else hooks
        self.wake = wake
        self._check_owner = check_owner
        # A session lives at least this long after its last heartbeat.
        self._lease_ms = config.zookeeper_session_timeout_s * 500
        self._leased_until_ms = now_ms() + self._lease_ms
        self._waiting = 0  # threads in `wait`

    @property
    def assigned(self) -> dict[str, AssignedShard]:
        return self.rotation.assigned

    # emitting -------------------------------------------------------------------------------------
    def emit(self) -> SpoutEmission | None:
        """Return the next record; None if no shard has a record that may be emitted now. Raises the
        error that has stopped the spout. If the last call is long ago, blocks on `check_owner`
        first.
        """
        if self.error is not None:
            raise self.error
        now_ms = self.now_ms()
        if now_ms > self._leased_until_ms:
            self._check_owner()
        self._leased_until_ms = now_ms + self._lease_ms
        # This method and `resolve` run once per record, and a `with` statement takes twice the time
        # of these calls. An interrupt may arrive between any two of them, and then only the lock
        # knows whether it is held.
        changed = self.changed
        try:
            changed.acquire()
            emission = self.rotation.emit(now_ms)
            if emission is None and self.rotation.isolation.asks_for_commit():
                self.wake("commit")
        finally:
            try:  # noqa: SIM105  # `suppress` takes longer than all the rest
                changed.release()
            except RuntimeError:
                pass
        return emission

    def wait(self, timeout_s: float, until: Callable[[], bool]) -> float:
        """Wait until `until()` is true, until the next retry is due, or until `timeout_s` has
        passed. Returns the seconds waited. `until` is called after each change, with the lock held.
        """
        if timeout_s <= 0:
            return 0.0
        began_ms = self.now_ms()
        with self.changed:
            self._waiting += 1
            try:
                due_s = (self.rotation.next_retry_ms() - self.now_ms()) / 1000
                self.changed.wait_for(until, max(0.0, min(timeout_s, due_s)))
            finally:
                self._waiting -= 1
        return (self.now_ms() - began_ms) / 1000

    def stop(self, error: Exception) -> None:
        """Stop emitting records: the next request for a record raises the first error. Outcomes
        still count.
        """
        with self.changed:
            is_first = self.error is None
            self.error = self.error or error
            self.changed.notify_all()
        # The next request for a record raises the first error, so that one is not logged.
        self._hooks.error(error, is_logged=not is_first)

    def close(self) -> None:
        """Ignore all further outcomes, which would not be committed."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()

    def leave(self) -> None:
        """As `close`, in a forked process: nobody releases a lock that was held, and there is no
        thread to wake.
        """
        self.changed = threading.Condition(threading.RLock())
        self.trees.open, self.wake = {}, lambda _loop: None
        self.close()

    # outcomes -------------------------------------------------------------------------------------
    def resolve(self, emission: SpoutEmission, *, notifies: bool = True) -> bool:
        """Ack an emission, and return whether the ack counted. It does not count if the record is
        already acked or dead-lettered, if its shard was released, or if the spout is closed.
        `notifies`: whether to call the listeners.
        """
        now_ms = self.now_ms()
        assigned, changed, resolved = emission.assigned, self.changed, None
        try:
            changed.acquire()
            if not (assigned.is_released or self._is_closed):
                resolved = assigned.shard.mark_acked(emission)
            if resolved is not None:
                rotation = self.rotation
                rotation.pending -= resolved
                assigned.is_dirty = True
                assigned.counts.on_ack(floor(now_ms - emission.run.arrivals[emission.index]))
                # A shard at max_unresolved_per_shard leaves the rotation. Now it has room again.
                if not assigned.in_rotation and assigned.shard.open_run is not None:
                    rotation.enqueue(assigned)
            # Only if a thread is in `wait`: a notification for each record would slow all acks.
            if self._waiting:
                changed.notify_all()
        finally:
            try:  # noqa: SIM105  # `suppress` takes longer than all the rest
                changed.release()
            except RuntimeError:
                pass
        if self.trees.open:
            self.trees.end(emission.message_id)
        if resolved is None:
            return False
        if self._hooks.any and notifies:
            self._hooks.notify("acked", emission)
        return True

    def answer_unheld(
        self, shard_id: str, sequence: SequenceNumber, attempt: int, *, acked: bool
    ) -> bool:
        """Apply a late outcome, by message id, of a record whose payload is not in memory. Returns
        whether it counted; a failure never counts. Raises `IllegalAckerEventError`, as the methods
        of an emission.

        A message id names one record. If the record is the first of a range with a common outcome,
        the ack does not count, and the range is redelivered.
        """
        with self.changed:
            assigned = self.assigned.get(shard_id)
            if assigned is None:
                return False
            assigned.answer(str(sequence), attempt, acked=acked)
            if not acked or assigned.shard.begins_range(sequence):
                return False
            resolved = assigned.shard.mark_node_acked(sequence, attempt)
            if resolved is None:
                return False
            # `resolved` is 0 for a queued record, and 1 if the record was redelivered in the
            # meantime.
            assigned.counts.acked += 1
            self._answered(assigned, resolved)
            return True

    def _answered(self, assigned: AssignedShard, fewer: int) -> None:
        """Note outcomes of a shard, by which `fewer` records are pending. Hold `changed`."""
        self.rotation.pending -= fewer
        assigned.is_dirty = True
        self.rotation.enqueue(assigned)
        self.changed.notify_all()

    def record_failure(
        self,
        emission: SpoutEmission,
        reason: str | None,
        *,
        retry: bool = True,
        is_malformed: bool = False,
    ) -> Effect:
        """Fail an emission; without `retry`, its record is exhausted at once. Returns QUEUED or
        EXHAUSTED, or another effect if the failure did not count. `is_malformed`: the scheme could
        not decode the record.
        """
        reason = reason_text(reason)
        effect = Effect.UNKNOWN
        with self.changed:
            assigned = emission.assigned
            assigned.counts.malformed += is_malformed
            if not (assigned.is_released or self._is_closed):
                effect = assigned.shard.mark_failed(
                    emission,
                    int(self.now_ms()),
                    reason=reason,
                    retry=retry,
                    max_held_bytes=self._held_bytes_per_shard,
                )
                if effect in COUNTED_FAILURES:
                    assigned.counts.failed += 1
                    self._answered(assigned, 1)
        if self.trees.open:
            self.trees.end(emission.message_id)
        self._stop_if_nothing_is_acked()
        if effect in COUNTED_FAILURES or is_malformed:
            self._hooks.notify("failed", emission, reason)
        return effect

    def expire(self) -> list[SpoutEmission]:
        """Fail all emissions that have timed out, and return them."""
        now_ms = int(self.now_ms())
        expired: list[SpoutEmission] = []
        with self.changed:
            for assigned in self.assigned.values():
                shard = assigned.shard
                due_ms = shard.next_deadline_ms() if shard.pending else None
                if due_ms is None or due_ms > now_ms:
                    continue
                late = shard.expire(now_ms, max_held_bytes=self._held_bytes_per_shard)
                assigned.counts.timed_out += len(late)
                assigned.counts.failed += len(late)
                expired += [SpoutEmission.of(assigned, delivery) for delivery in late]
                self._answered(assigned, len(late))
        self._stop_if_nothing_is_acked()
        return expired

    def next_deadline_ms(self) -> int | None:
        """Return when the next emission times out, or None. O(shards with pending records)."""
        with self.changed:
            times = [
                assigned.shard.next_deadline_ms()
                for assigned in self.assigned.values()
                if assigned.shard.pending
            ]
        return min((ms for ms in times if ms is not None), default=None)

    def extend(self, emission: SpoutEmission, timeout_s: float | None) -> bool:
        """See `SpoutEmission.extend`."""
        assigned, deadline_ms = emission.assigned, None
        with self.changed:
            try:
                if timeout_s is not None:
                    deadline_ms = int(self.now_ms()) + round(timeout_s * 1000.0)
            except (TypeError, ValueError, OverflowError) as exc:
                raise ConfigError.about(
                    "timeout_s",
                    f" of extend is {text_of(timeout_s)}",
                    "pass a number of seconds, or None for no deadline",
                    kind="parameter",
                ) from exc
            extended = not (assigned.is_released or self._is_closed) and assigned.shard.extend(
                emission, deadline_ms
            )
        if extended:
            self.trees.on_extended(emission.message_id, deadline_ms)
        self.wake("timeouts")
        return extended

    def tree(self, emission: SpoutEmission) -> TupleTree:
        """See `SpoutEmission.tree`."""
        return self.trees.begin(emission)

    def find(self, shard_id: str, sequence: SequenceNumber, attempt: int) -> SpoutEmission | None:
        """Return the emission that a message id names; None if its payload is not in memory."""
        with self.changed:
            if (assigned := self.assigned.get(shard_id)) is None:
                return None
            delivery = assigned.shard.find(sequence, attempt)
            return None if delivery is None else SpoutEmission.of(assigned, delivery)

    def _stop_if_nothing_is_acked(self) -> None:
        limit = self.rotation.config.breaker_failures
        if limit is None or self.error is not None:
            return
        with self.changed:
            if any(one.acked for one in self._counts()):  # nearly always true for the first
                return
            failed = sum(one.failed for one in self._counts())
        if failed >= limit:
            self.stop(
                NothingAckedError(
                    f"{failed} records of stream {self.stream_name} failed and no record was "
                    "acked, so the spout has stopped. No record is lost: a restart redelivers "
                    "the records",
                    "correct the program, or set breaker_failures to None for no limit",
                )
            )

    # shards ---------------------------------------------------------------------------------------
    def add(self, shard: TrackedShard) -> AssignedShard:
        """Assign a shard that is not assigned yet."""
        with self.changed:
            assigned = AssignedShard(shard, self)
            self.rotation.add(assigned)
            self.changed.notify_all()
            return assigned

    def remove(self, shard_id: str) -> None:
        """Release a shard. Outcomes of its deliveries are ignored from now on."""
        with self.changed:
            self.released_counts.add(self.rotation.remove(shard_id).counts)

    def reschedule(self, assigned: AssignedShard) -> None:
        """Let the shard take its turns again, after a page or a payload was added."""
        with self.changed:
            self.rotation.reschedule(assigned)
            self.changed.notify_all()

    # payloads and letters -------------------------------------------------------------------------
    def wanted(self, *, letters: bool) -> list[tuple[AssignedShard, list[UnresolvedRecord]]]:
        """Return the records to read again for their retries or dead letters, by shard."""
        now_ms = int(self.now_ms())
        with self.changed:
            held = ((one, one.shard.held) for one in self.assigned.values())
            return [
                (one, its.wanted_letters() if letters else its.wanted(now_ms)) for one, its in held
            ]

    def restock(
        self,
        assigned: AssignedShard,
        found: Iterable[tuple[UnresolvedRecord, RecordRun]],
    ) -> None:
        """Keep the payloads of wanted records. See `RetryBuffer.restock`. A no-op if the shard was
        released while they were read.
        """
        with self.changed:
            if assigned.is_released:
                return
            now_ms = int(self.now_ms())
            for record, run in found:
                assigned.shard.held.restock(record, run, now_ms)
            self.reschedule(assigned)

    def room_bytes(self, *, letters: bool) -> int:
        """Return how many bytes of payload may still be kept for retries, or for dead letters,
        which get at most half of the room. O(shards).

        A kept payload is not read again, so its room is free once its record is resolved.
        """
        with self.changed:
            held = [assigned.shard.held for assigned in self.assigned.values()]
            room = self.rotation.config.prefetch_bytes - sum(one.held_bytes for one in held)
            of_letters = self._most_letter_bytes - sum(one.letter_bytes for one in held)
        return min(room, of_letters) if letters else room

    @property
    def _most_letter_bytes(self) -> int:
        return self.rotation.config.prefetch_bytes // 2

    @property
    def _held_bytes_per_shard(self) -> int:
        return self.rotation.config.prefetch_bytes // max(1, len(self.assigned))

    def letters(self) -> Iterator[tuple[AssignedShard, UnresolvedRecord]]:
        """Yield the exhausted records that can be dead-lettered now. Hold `changed` meanwhile."""
        for assigned in list(self.assigned.values()):
            for record in assigned.shard.held.letters():
                yield assigned, record

    def dead_lettered(self, assigned: AssignedShard, sequence: SequenceNumber, count: int) -> bool:
        """Note that a letter was written; its record then counts as acked. Returns False if a late
        ack came first.
        """
        with self.changed:
            if (
                assigned.is_released
                or assigned.shard.mark_dead_lettered(sequence) is not Effect.ACKED
            ):
                return False
            assigned.counts.dead_lettered += count
            self._answered(assigned, 0)
            return True

    def letter_refused(self, assigned: AssignedShard, sequence: SequenceNumber) -> None:
        """Note that the sink refused a letter. Its payload is dropped if another one needs room, or
        if the letters have more than their half: a record that was exhausted while it waited keeps
        its payload at first.
        """
        with self.changed:
            held = [one.shard.held for one in self.assigned.values()]
            is_over = sum(one.letter_bytes for one in held) > self._most_letter_bytes
            lacks_letter = any(one.lacks_letter for one in held)
            drop = is_over or (lacks_letter and self.room_bytes(letters=True) <= 0)
            assigned.shard.held.refuse(sequence, drop=drop)

    # observations ---------------------------------------------------------------------------------
    def _counts(self) -> Iterator[ShardCounts]:
        yield self.released_counts
        for assigned in self.assigned.values():
            yield assigned.counts

    def counts(self) -> ShardCounts:
        """Return the total counts of all shards, including released shards. O(shards)."""
        total = ShardCounts()
        with self.changed:
            for one in self._counts():
                total.add(one)
        return total

    def metrics(
        self, service_now_ms: int, refused: Counter[str]
    ) -> tuple[ShardMetrics, dict[str, ShardMetrics]]:
        """Return the total and the metrics by shard. Later events do not change them. O(shards).
        `refused`: the number of refused letters, by shard.
        """
        with self.changed:
            shards = {
                shard_id: assigned.metrics(service_now_ms, refused[shard_id])
                for shard_id, assigned in sorted(self.assigned.items())
            }
            counts = self.counts()
        lags = [one.lag_ms for one in shards.values() if one.lag_ms is not None]
        total = ShardMetrics(
            counts=counts,
            pending=sum(one.pending for one in shards.values()),
            queued=sum(one.queued for one in shards.values()),
            lag_ms=max(lags, default=None),
            refused=sum(one.refused for one in shards.values()),
        )
        return total, shards
