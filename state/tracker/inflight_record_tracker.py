"""The records of one shard that are in flight, and the checkpoint that follows from them.

The data structure is a linked hash map: a doubly linked list of nodes in emission order, which is
the order of the sequence numbers, and a hash map from a node's first sequence number to the node.
An outcome finds its node by the map and changes at most its two neighbours in the list, whatever is
in flight. Resolved records leave the map, so its size follows what is unresolved and not what was
read.

`state.tracker.transitions` has the theory of operation and the two tables: which event is allowed
in which state, and what an ack does to its neighbours. This module applies them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.collections.due_queue import DueQueue
from state.collections.shrinking_dict import ShrinkingDict
from state.errors import IllegalTrackerEventError
from state.position import SHARD_END, Position, PositionKind
from state.tracker.emission import Emission
from state.tracker.nodes import Node, NodeList
from state.tracker.snapshot import restored_nodes, snapshot_of, stored_record
from state.tracker.spans import Run, split_span
from state.tracker.transitions import CELLS, SEEN_AS, TRANSITIONS, Effect, Event, NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from state.retry_policy import RetryPolicy
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState, UnresolvedRecord

_TIMED_OUT = "no outcome until its deadline"


class InflightRecordTracker:
    """Tracks the records of one shard from their first emission until they are resolved.

    Restored from a `ShardState`, and saved to one by `snapshot`.

    - Cost: emit, ack and fail are O(1) amortised, however much is in flight. An event that enters a
      record into the queue of retries or of deadlines costs O(log n) at worst.
    - Memory: O(unresolved records + gaps). A gap is a run of acked records between two unresolved
      ones; it costs one node, however long it is.
    - Purity: no I/O and no clock. Times are arguments, in milliseconds since 1970; randomness is
      passed in.
    - Threads: not safe from several threads at a time. The caller holds a lock.
    - Errors: an event that the table does not allow raises `IllegalTrackerEventError` and changes
      nothing. An outcome of an unknown emission changes nothing and returns `Effect.UNKNOWN`.

    An emission is registered before its id is returned, so no ack can come too early.
    """

    def __init__(
        self,
        state: ShardState,
        *,
        retry_policy: RetryPolicy,
        random: Random,
        restore_exhausted: bool = True,
    ) -> None:
        """Restore from `state`: each unresolved record is queued, with the attempts that it had.

        A record that `retry_policy` does not allow to be tried again is restored as exhausted.
        With `restore_exhausted=False` it is queued as well; settling needs that, because it applies
        decisions and makes none. Raises `StoredDataError` when `state` contradicts itself.
        """
        self._state = state
        self._policy = retry_policy
        self._random = random
        self._nodes = NodeList()
        self._counts = dict.fromkeys(NodeState, 0)
        self._retries: DueQueue[SequenceNumber] = DueQueue()
        self._deadlines: DueQueue[SequenceNumber] = DueQueue()
        self._exhausted: ShrinkingDict[SequenceNumber, Node] = ShrinkingDict()
        self._checkpoint = state.checkpoint
        self._emitted = False
        self._end_reached = state.read_position.is_end
        self._bound = state.checkpoint
        self._bound_is_next = False
        self._restore(restored_nodes(state, retry_policy if restore_exhausted else None))

    # observations
    # ------------
    @property
    def shard_id(self) -> str:
        return self._state.shard_id

    @property
    def checkpoint(self) -> SequenceNumber | None:
        """The greatest known sequence number up to which everything is acked; None as long as
        nothing is.
        """
        return self._checkpoint

    @property
    def read_position(self) -> Position:
        """Behind everything that was emitted."""
        if self._end_reached:
            return SHARD_END
        if self._emitted and self._bound is not None:
            return Position.after(self._bound)
        return self._state.read_position

    @property
    def next_retry_ms(self) -> int | None:
        """When the next retry is due, or None when none is queued."""
        return self._retries.next_ms()

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next pending emission times out, or None when none can."""
        return self._deadlines.next_ms()

    @property
    def exhausted(self) -> tuple[UnresolvedRecord, ...]:
        """What the caller is to dead-letter, in the order in which it came to that. Then call
        `dead_lettered`.
        """
        return tuple(stored_record(node) for node in self._exhausted.values())

    @property
    def unresolved_count(self) -> int:
        """Records that are pending, queued or exhausted."""
        return (
            self.count(NodeState.PENDING)
            + self.count(NodeState.QUEUED)
            + self.count(NodeState.EXHAUSTED)
        )

    def queued(self, sequence: SequenceNumber) -> UnresolvedRecord | None:
        """The record (or range, by its first number) that waits for its retry, or None when it does
        not.
        """
        node = self._nodes.get(sequence)
        return None if node is None or node.state is not NodeState.QUEUED else stored_record(node)

    @property
    def node_count(self) -> int:
        """Nodes held: what memory goes by."""
        return len(self._nodes)

    def count(self, state: NodeState) -> int:
        """Records in an unresolved state, spans with all of theirs. For ACKED: acked since the
        tracker was made.
        """
        return self._counts[state]

    def snapshot(self) -> ShardState:
        """The state to store. Restored from it, exactly the unresolved records come again, each
        with its attempts.
        """
        return snapshot_of(self._state, self._nodes, self._checkpoint, self.read_position)

    # emissions
    # ---------
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
    # --------
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

    # private
    # -------
    def _restore(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._enter(node)
            self._bound = node.last
            if node.state is NodeState.QUEUED:
                self._retries.put(node.first, stored_record(node).due_ms)
            elif node.state is NodeState.EXHAUSTED:
                self._exhausted[node.first] = node
        position = self._state.read_position
        if position.sequence is not None:
            self._bound = position.sequence
            self._bound_is_next = position.kind is PositionKind.AT

    def _enter(self, node: Node) -> None:
        self._nodes.append(node)
        if node.state is not NodeState.ACKED:
            self._counts[node.state] += node.count

    def _move(self, node: Node, event: Event) -> None:
        state = TRANSITIONS.get((event, node.state))
        if state is None:
            raise self._illegal(event.value, node.first, node.state.value)
        self._counts[node.state] -= node.count
        self._counts[state] += node.count
        node.state = state

    def _resolve(self, node: Node, event: Event) -> None:
        self._move(node, event)
        self._forget_waits(node)
        node.record = None
        self._collapse(node)

    def _forget_waits(self, node: Node) -> None:
        self._retries.discard(node.first)
        self._deadlines.discard(node.first)
        self._exhausted.drop(node.first)

    def _collapse(self, node: Node) -> None:
        """Apply the table's cell to a node that has just become acked."""
        places = (node.before, node, node.after)
        cell = CELLS[SEEN_AS[node.before.state], SEEN_AS[node.after.state]]
        for place in cell.drop:
            self._nodes.remove(places[place])
        if cell.checkpoint is not None:
            self._checkpoint = places[cell.checkpoint].last

    def _split(self, span: Node, runs: Sequence[Run]) -> None:
        """Put what is split out in the span's place, pending as it was; the rest of it is acked."""
        pieces = split_span(self.shard_id, span, runs)
        left = sum(run.count for run in runs)
        place = span.before
        self._forget_waits(span)
        self._nodes.remove(span)
        self._counts[NodeState.PENDING] += left - span.count
        self._counts[NodeState.ACKED] += max(span.count - left, 0)
        for piece in pieces:
            self._nodes.insert(piece, place)
            place = piece
        for piece in (pieces[0], pieces[-1]):
            if piece.state is NodeState.ACKED:
                self._collapse(piece)

    def _emission(self, node: Node) -> Emission:
        return Emission(self._state.shard_id, node.first, node.attempts + 1, node.last, node.count)

    def _known(self, event: Event, sequence: SequenceNumber) -> Node:
        node = self._nodes.get(sequence)
        if node is None:
            raise self._illegal(event.value, sequence, "unknown or acked")
        return node

    def _illegal(
        self, event: str, sequence: SequenceNumber, state: str
    ) -> IllegalTrackerEventError:
        return IllegalTrackerEventError(
            f"shard {self.shard_id}: {event} of {sequence} is not allowed: it is {state}; nothing "
            "was changed"
        )

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
