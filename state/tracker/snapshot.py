"""Converts a tracker's nodes to a shard's stored state, and back.

The checkpoint, the unresolved records and the read position are stored. Acked nodes are not stored:
every record before the read position that is not unresolved is acked. A restored tracker has every
unresolved record queued, with the attempts that it had.

The checkpoint and a read position AFTER a record cover all user records of an aggregate. A read
position AT a user record lies within its aggregate.
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
    from collections.abc import Mapping

    from state.retry_policy import RetryPolicy
    from state.sequence_number import SequenceNumber
    from state.tracker.nodes import NodeList


def restored_nodes(state: ShardState, policy: RetryPolicy | None) -> list[Node]:
    """The nodes of a stored state, in order. Without a policy all of them are queued; with one,
    those that may not be retried are exhausted. Raises `StoredDataError` when the state contradicts
    itself.
    """
    nodes: list[Node] = []
    # The number up to which everything is accounted for; the next record must lie above it.
    floor = state.checkpoint
    for record in sorted(state.unresolved, key=lambda unresolved: unresolved.first):
        passed = floor is not None and (
            not floor < record.first or (not nodes and floor.shares_record(record.first))
        )
        if record.last < record.first or passed:
            raise _contradiction(
                state,
                f"unresolved {record.first} to {record.last} overlaps records at or before {floor}",
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
    # When the last unresolved record is acked, the checkpoint must jump to the last number read.
    if nodes and read_up_to is not None and nodes[-1].last.sequence < read_up_to.sequence:
        nodes.append(Node(read_up_to, read_up_to, 1, NodeState.ACKED))
    return nodes


def snapshot_of(
    state: ShardState,
    nodes: NodeList,
    checkpoint: SequenceNumber | None,
    read_position: Position,
    announced: Mapping[SequenceNumber, UnresolvedRecord],
) -> ShardState:
    """`state` with the tracker's checkpoint, unresolved records and read position. O(nodes).

    `announced`: what is stored for some pending records instead of what is known of them.

    The records at the end of the list that are pending in their first attempt are not stored. The
    read position is put before them instead, so a restart reads them as if for the first time. That
    delivers exactly the same records, and its size does not depend on how many are in flight.
    """
    tail = _unread_tail(nodes, announced)
    unresolved = []
    for node in nodes:
        if node is tail:
            before = node.before
            # A restored node may lie far behind what was read.
            follows = before.state is NodeState.ACKED and not before.detached
            is_rest = before.last.shares_record(node.first)
            read_position = (
                Position.after(before.last.whole)
                if follows and not is_rest
                else Position.at(node.first)
            )
            break
        if node.state is not NodeState.ACKED:
            unresolved.append(announced.get(node.first) or stored_record(node))
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
    """The stored form of an unresolved node. A record that never failed is due at once."""
    if node.record is not None:
        return node.record
    return UnresolvedRecord(
        first=node.first, last=node.last, count=node.count, attempts=0, due_ms=0
    )


def _unread_tail(
    nodes: NodeList, announced: Mapping[SequenceNumber, UnresolvedRecord]
) -> Node | None:
    """The first of the trailing nodes that a restart may read again as new records, or None.

    A detached node is none of them: reading on before it would deliver acked neighbours again. An
    announced one is none either: it must be stored with its attempt.
    """
    tail = None
    node = nodes.sentinel.before
    while (
        node.state is NodeState.PENDING
        and node.record is None
        and not node.detached
        and node.first not in announced
    ):
        tail, node = node, node.before
    return tail


def _read_up_to(state: ShardState, floor: SequenceNumber | None) -> SequenceNumber | None:
    """The last number read, if the read position is AFTER it; else None: AT names a number that was
    not read. Raises `StoredDataError` for a position that lies before `floor`.
    """
    position = state.read_position
    if position.sequence is None:
        return None
    behind = position.kind is PositionKind.AFTER
    if floor is not None and (
        position.sequence.sequence < floor.sequence if behind else position.sequence <= floor
    ):
        raise _contradiction(
            state, f"read position {position} lies before {floor}, which was read already"
        )
    return position.sequence if behind else None


def _contradiction(state: ShardState, what: str) -> StoredDataError:
    return StoredDataError(
        f"the stored state of shard {state.shard_id} contradicts itself ({what})",
        "restore it from a backup, or reset the shard's position",
    )
