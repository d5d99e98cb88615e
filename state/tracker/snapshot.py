"""Between the tracker's nodes and what is stored of a shard.

Stored are the checkpoint, the unresolved records and the read position. Acked nodes are not:
everything before the read position that is not unresolved is acked. Restored from it, every
unresolved record is queued with the attempts it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.errors import StoredDataError
from state.position import Position, PositionKind
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.tracker.nodes import Node
from state.tracker.transitions import NodeState

if TYPE_CHECKING:
    from state.retry_policy import RetryPolicy
    from state.sequence_number import SequenceNumber
    from state.tracker.nodes import NodeList


def restored_nodes(state: ShardState, policy: RetryPolicy | None) -> list[Node]:
    """The nodes of a stored state, in order; all queued without a policy. Raises `StoredDataError`
    when it contradicts itself.
    """
    nodes: list[Node] = []
    floor = state.checkpoint
    for record in sorted(state.unresolved, key=lambda unresolved: unresolved.first):
        if record.last < record.first or (floor is not None and not floor < record.first):
            raise _contradiction(
                state,
                f"unresolved {record.first} to {record.last} overlaps what is at or before {floor}",
            )
        floor = record.last
        exhausted = policy is not None and (
            record.rejected or policy.exhausted(record.attempts, None, 0)
        )
        node_state = NodeState.EXHAUSTED if exhausted else NodeState.QUEUED
        nodes.append(
            Node(record.first, record.last, record.count, node_state, record, detached=True)
        )
    read_up_to = _read_up_to(state, floor)
    if nodes and read_up_to is not None and nodes[-1].last < read_up_to:
        nodes.append(Node(read_up_to, read_up_to, 1, NodeState.ACKED))
    return nodes


def snapshot_of(
    state: ShardState, nodes: NodeList, checkpoint: SequenceNumber | None, read_position: Position
) -> ShardState:
    """`state` with what the nodes say. Blocks for O(nodes).

    What is pending in its first attempt behind everything else is left out and the read position
    put before it: to read it for the first time is to deliver it again exactly, however much it is.
    """
    tail = _unread_tail(nodes)
    unresolved = []
    for node in nodes:
        if node is tail:
            read_position = (
                Position.after(node.before.last)
                if node.before.state is NodeState.ACKED
                else Position.at(node.first)
            )
            break
        if node.state is not NodeState.ACKED:
            unresolved.append(stored_record(node))
    lifecycle = Lifecycle.ACTIVE
    if read_position.is_end:
        lifecycle = Lifecycle.DRAINED if unresolved else Lifecycle.FINISHED
    return replace(
        state,
        checkpoint=checkpoint,
        read_position=read_position,
        unresolved=tuple(unresolved),
        lifecycle=lifecycle,
    )


def stored_record(node: Node) -> UnresolvedRecord:
    """An unresolved node as it is stored. One that never failed may be delivered again at once."""
    if node.record is not None:
        return node.record
    return UnresolvedRecord(
        first=node.first, last=node.last, count=node.count, attempts=0, due_ms=0
    )


def _unread_tail(nodes: NodeList) -> Node | None:
    """The first of the nodes at the end of the list that are as if they had not been read yet."""
    tail = None
    node = nodes.sentinel.before
    while node.state is NodeState.PENDING and node.record is None and not node.detached:
        tail, node = node, node.before
    return tail


def _read_up_to(state: ShardState, floor: SequenceNumber | None) -> SequenceNumber | None:
    """The number up to which the state says the shard was read, if it says one that was read
    itself.
    """
    position = state.read_position
    if position.sequence is None:
        return None
    behind = position.kind is PositionKind.AFTER
    if floor is not None and (
        position.sequence < floor or (not behind and position.sequence == floor)
    ):
        raise _contradiction(state, f"read position {position} lies before {floor}, which was read")
    return position.sequence if behind else None


def _contradiction(state: ShardState, what: str) -> StoredDataError:
    return StoredDataError(
        f"shard {state.shard_id}: stored state contradicts itself: {what}; restore it, or reset "
        "the shard's position"
    )
