"""Tracks what was emitted of one shard until it is resolved, and how far everything is.

The theory of operation and the tables of transitions are in `tracker_table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.due_queue import DueQueue
from state.emission import Emission
from state.errors import IllegalTrackerEventError
from state.position import SHARD_END, Position, PositionKind
from state.shrinking_dict import ShrinkingDict
from state.tracker_nodes import Node, NodeList
from state.tracker_snapshot import restored_nodes, snapshot_of, stored_record
from state.tracker_spans import split_span
from state.tracker_table import CELLS, SEEN_AS, TRANSITIONS, Effect, Event, NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from state.retry_policy import RetryPolicy
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState, UnresolvedRecord

_TIMED_OUT = "no outcome until its deadline"


class InflightRecordTracker:
    """The records of one shard between their first emission and their end, restored from and saved to a `ShardState`.

    Emit, ack and fail cost O(1) (amortised; entering the queue of retries or deadlines O(log n) at worst) whatever
    is in flight, and memory is O(unresolved records and gaps between them). Pure: times are arguments in milliseconds. Not safe
    from several threads at a time: the caller holds a lock.

    An event that is not allowed raises `IllegalTrackerEventError` and changes nothing. An outcome of an emission that is not
    known changes nothing and is told by its `Effect`. An emission is registered before its id exists: no ack is too early.
    """

    def __init__(self, state: ShardState, *, retry_policy: RetryPolicy, random: Random) -> None:
        """Restore from `state`: its unresolved records are queued. Raises `StoredDataError` when it contradicts itself."""
        self._state = state
        self._policy = retry_policy
        self._random = random
        self._nodes = NodeList()
        self._counts = dict.fromkeys(NodeState, 0)
        self._retries = DueQueue()
        self._deadlines = DueQueue()
        self._exhausted: ShrinkingDict[SequenceNumber, Node] = ShrinkingDict()
        self._checkpoint = state.checkpoint
        self._emitted = False
        self._end_reached = state.read_position.is_end
        self._bound = state.checkpoint
        self._bound_is_next = False
        self._restore()

    # what holds now ---------------------------------------------------------------------------------------------------
    @property
    def shard_id(self) -> str:
        return self._state.shard_id

    @property
    def checkpoint(self) -> SequenceNumber | None:
        """The greatest known sequence number up to which everything is acked; None as long as nothing is."""
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
        """What the caller is to dead-letter, in the order in which it came to that. Then call `dead_lettered`."""
        return tuple(stored_record(node) for node in self._exhausted.values())

    @property
    def unresolved_count(self) -> int:
        """Records that are pending, queued or exhausted."""
        return self.count(NodeState.PENDING) + self.count(NodeState.QUEUED) + self.count(NodeState.EXHAUSTED)

    @property
    def node_count(self) -> int:
        """Nodes held: what memory goes by."""
        return len(self._nodes)

    def count(self, state: NodeState) -> int:
        """Records in an unresolved state, spans with all of theirs. For ACKED: acked since the tracker was made."""
        return self._counts[state]

    # emissions ----------------------------------------------------------------------------------------------------
    def emit(self, sequence: SequenceNumber, *, deadline_ms: int | None = None) -> Emission:
        """Register a record's first emission, in the order of the shard. It times out at `deadline_ms`, if that is given."""
        self._append(sequence, sequence, 1)
        if deadline_ms is not None:
            self._deadlines.put(sequence, deadline_ms)
        return Emission(self._state.shard_id, sequence, 1, sequence)

    def emit_span(self, first: SequenceNumber, last: SequenceNumber, count: int) -> Emission:
        """Register the first emission of the `count` records from `first` to `last`, both inclusive, as one node."""
        if last < first or count < 1 or (count == 1) != (first == last):
            raise IllegalTrackerEventError(
                f"shard {self.shard_id}: {first} to {last} cannot be a span of {count} records; pass a span as it was read"
            )
        self._append(first, last, count)
        return Emission(self._state.shard_id, first, 1, last, count)

    def take_retry(self, now_ms: int, *, deadline_ms: int | None = None) -> Emission | None:
        """Emit the retry that is due, the earliest due first, then the lowest sequence number; None when none is.

        One that is older than the policy's maximum age by now is not emitted: it is found in `exhausted`.
        """
        while (sequence := self._retries.pop_due(now_ms)) is not None:
            node = self._known(Event.RETRY, sequence)
            record = stored_record(node)
            if not self._policy.exhausted(record.attempts, record.first_failure_ms, now_ms):
                return self.retry(sequence, deadline_ms=deadline_ms)
            self._move(node, Event.EXHAUST)
            self._exhausted[sequence] = node
        return None

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

    # outcomes -----------------------------------------------------------------------------------------------------
    def ack(self, sequence: SequenceNumber, attempt: int) -> Effect:
        """The record (or span, by its first number) was processed in that attempt, be it an earlier one."""
        node = self._nodes.get(sequence)
        if node is None or not 1 <= attempt <= node.deliveries:
            return Effect.UNKNOWN
        self._resolve(node, Event.ACK)
        return Effect.ACKED

    def ack_span(self, first: SequenceNumber, attempt: int, *, split_out: Sequence[SequenceNumber] = ()) -> Effect:
        """Ack a pending span except for the records of `split_out` (ascending), which go on as records, pending in `attempt`.

        For a range that was restored, `split_out` may also be all records that were found in it.
        """
        node = self._nodes.get(first)
        if not split_out or node is None or attempt != node.deliveries or node.state is not NodeState.PENDING:
            return self.ack(first, attempt)
        self._split(node, split_out)
        return Effect.ACKED

    def fail(
        self, sequence: SequenceNumber, attempt: int, now_ms: int, *, reason: str | None = None, retry: bool = True
    ) -> Effect:
        """The record (or all of a span, by its first number) failed in that attempt. It is exhausted at once unless `retry`."""
        node = self._nodes.get(sequence)
        if node is None or not 1 <= attempt <= node.deliveries:
            return Effect.UNKNOWN
        if attempt <= node.attempts:
            return Effect.IGNORED
        record = self._failed(node, now_ms, reason)
        again = retry and not self._policy.exhausted(record.attempts, record.first_failure_ms, now_ms)
        self._move(node, Event.FAIL if again else Event.EXHAUST)
        node.record = record
        self._deadlines.discard(sequence)
        if again:
            self._retries.put(sequence, record.due_ms)
            return Effect.QUEUED
        self._exhausted[sequence] = node
        return Effect.EXHAUSTED

    def expire(self, now_ms: int) -> list[Emission]:
        """Fail every pending emission whose deadline is `now_ms` or earlier, and return them in the order of their deadlines."""
        expired = []
        while (sequence := self._deadlines.pop_due(now_ms)) is not None:
            emission = self._emission(self._known(Event.FAIL, sequence))
            self.fail(sequence, emission.attempt, now_ms, reason=_TIMED_OUT)
            expired.append(emission)
        return expired

    def dead_lettered(self, sequence: SequenceNumber) -> Effect:
        """An exhausted record is in the dead letter, so it counts as acked. Unknown when a late ack came first."""
        node = self._nodes.get(sequence)
        if node is None or node.state is NodeState.ACKED:
            return Effect.UNKNOWN
        self._resolve(node, Event.DEAD_LETTER)
        return Effect.ACKED

    def snapshot(self) -> ShardState:
        """The state to store. Restored from it, exactly the unresolved records come again, each with its attempts."""
        return snapshot_of(self._state, self._nodes, self._checkpoint, self.read_position)

    # how ----------------------------------------------------------------------------------------------------------
    def _restore(self) -> None:
        for node in restored_nodes(self._state, self._policy):
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

    def _append(self, first: SequenceNumber, last: SequenceNumber, count: int) -> None:
        bound = self._bound
        passed = bound is not None and not bound < first and not (self._bound_is_next and first == bound)
        if passed or self._end_reached:
            node = self._nodes.get(first)
            behind = "behind the end of the shard" if self._end_reached else f"not behind {bound}, which was emitted"
            raise self._illegal("emission", first, behind if node is None else node.state.value)
        self._enter(Node(first, last, count, NodeState.PENDING))
        self._bound = last
        self._bound_is_next = False
        self._emitted = True

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

    def _split(self, span: Node, split_out: Sequence[SequenceNumber]) -> None:
        pieces = split_span(self.shard_id, span, split_out)
        place = span.before
        self._forget_waits(span)
        self._nodes.remove(span)
        self._counts[NodeState.PENDING] += len(split_out) - span.count
        self._counts[NodeState.ACKED] += max(span.count - len(split_out), 0)
        for piece in pieces:
            self._nodes.insert(piece, place)
            place = piece
        for piece in (pieces[0], pieces[-1]):
            if piece.state is NodeState.ACKED:
                self._collapse(piece)

    def _failed(self, node: Node, now_ms: int, reason: str | None) -> UnresolvedRecord:
        record = stored_record(node)
        attempts = record.attempts + 1
        return replace(
            record,
            attempts=attempts,
            due_ms=self._policy.due_ms(attempts, now_ms, self._random),
            first_failure_ms=now_ms if record.first_failure_ms is None else record.first_failure_ms,
            last_failure_ms=now_ms,
            reason=reason,
        )

    def _emission(self, node: Node) -> Emission:
        return Emission(self._state.shard_id, node.first, node.attempts + 1, node.last, node.count)

    def _known(self, event: Event, sequence: SequenceNumber) -> Node:
        node = self._nodes.get(sequence)
        if node is None:
            raise self._illegal(event.value, sequence, "unknown or acked")
        return node

    def _illegal(self, event: str, sequence: SequenceNumber, state: str) -> IllegalTrackerEventError:
        return IllegalTrackerEventError(
            f"shard {self.shard_id}: {event} of {sequence} is not allowed: it is {state}; nothing was changed"
        )
