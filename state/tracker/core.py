"""What the tracker of a shard is made of: its nodes, who waits for what, and the changes that keep
both true.

The events that make these changes are `inflight_record_tracker`'s; the theory of operation is in
`tracker_table`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.collections.due_queue import DueQueue
from state.collections.shrinking_dict import ShrinkingDict
from state.errors import IllegalTrackerEventError
from state.position import SHARD_END, Position, PositionKind
from state.tracker.emission import Emission
from state.tracker.nodes import Node, NodeList
from state.tracker.snapshot import restored_nodes, snapshot_of, stored_record
from state.tracker.spans import Run, split_span
from state.tracker.transitions import CELLS, SEEN_AS, TRANSITIONS, Event, NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from state.retry_policy import RetryPolicy
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState, UnresolvedRecord


class TrackerCore:
    """A shard's nodes with their queues: what can be asked of them, and the steps that events are
    made of.
    """

    def __init__(
        self,
        state: ShardState,
        *,
        retry_policy: RetryPolicy,
        random: Random,
        restore_exhausted: bool = True,
    ) -> None:
        """Restore from `state`: its unresolved records are queued. Raises `StoredDataError` when it
        contradicts itself.

        What may not be tried again is exhausted, unless `restore_exhausted` is False: for settling,
        which decides nothing.
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

    # what holds now
    # ---------------------------------------------------------------------------------------------------
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

    # steps
    # -------------------------------------------------------------------------------------------------------------
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
