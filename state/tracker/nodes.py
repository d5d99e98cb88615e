"""The tracker's linked hash map; what replaces a node whose span failed in part; and the stored
state that the nodes make, and are made from.

The list is a ring through a sentinel node, so no operation has a special case for the list's ends.

The checkpoint, the unresolved records and the read position are stored. Acked nodes are not stored:
every record before the read position that is not unresolved is acked. A restored tracker has every
unresolved record queued, with the attempts that it had.

The checkpoint and a read position AFTER a record cover all user records of an aggregate. A read
position AT a user record lies within its aggregate.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.collections import ShrinkingDict
from state.errors import IllegalTrackerEventError, StoredDataError
from state.position import Position, PositionKind
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.tracker.transitions import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from state.retry_policy import RetryPolicy


class Node:
    """A node of the list: a record, or a span of `count` records, `first` to `last` inclusive.

    - `record`: its failures so far, as they are stored. None for a node that has not failed, in
      this process or before a restart.
    - `announced`: what is stored of a pending node instead of what is known of it, or None.
    - `uncounted`: the failure of its latest delivery did not count as an attempt. So there was one
      delivery more than `attempts` says.
    - `detached`: it was split out or restored, so records may lie between it and its neighbours.
    - `below`: of an acked node, the greatest known number in its run of acked records that lies in
      an earlier Kinesis record than `last`; None without one. The checkpoint needs it while user
      records of `last`'s aggregate are unresolved.
    """

    __slots__ = (
        "after",
        "announced",
        "before",
        "below",
        "count",
        "detached",
        "first",
        "last",
        "record",
        "state",
        "uncounted",
    )

    before: Node
    after: Node
    below: SequenceNumber | None

    def __init__(
        self,
        first: SequenceNumber,
        last: SequenceNumber,
        count: int,
        state: NodeState,
        record: UnresolvedRecord | None = None,
        *,
        detached: bool = False,
    ) -> None:
        self.first = first
        self.last = last
        self.count = count
        self.state = state
        self.record = record
        self.detached = detached
        self.uncounted = False
        self.announced: UnresolvedRecord | None = None
        self.below = None if first is last or first.shares_record(last) else first

    def follow(self, before: Node) -> None:
        """`before` ends directly before this node. If both are acked, they are one run."""
        if before.state is self.state is NodeState.ACKED and self.below is None:
            below = before.below if before.last.shares_record(self.last) else before.last
            self.below = below

    @property
    def deliveries(self) -> int:
        """The highest attempt for which an outcome may still arrive; 0 once the node is acked."""
        if self.state is NodeState.ACKED:
            return 0
        attempts = 0 if self.record is None else self.record.attempts
        return attempts + (self.state is NodeState.PENDING or self.uncounted)


class NodeList:
    """The nodes in order, and by their first number. All is O(1), except for iteration."""

    def __init__(self) -> None:
        self._by_first: ShrinkingDict[SequenceNumber, Node] = ShrinkingDict()
        self.sentinel = Node(SequenceNumber(0), SequenceNumber(0), 0, NodeState.NONE)
        self.sentinel.before = self.sentinel.after = self.sentinel

    def __iter__(self) -> Iterator[Node]:
        node = self.sentinel.after
        while node is not self.sentinel:
            yield node
            node = node.after

    def get(self, first: SequenceNumber) -> Node | None:
        return self._by_first.get(first)

    def append(self, node: Node) -> None:
        self.insert(node, self.sentinel.before)

    def insert(self, node: Node, before: Node) -> None:
        """Insert a new node directly after `before`."""
        node.before, node.after = before, before.after
        before.after.before = node
        before.after = node
        self._by_first[node.first] = node

    def remove(self, node: Node) -> None:
        node.before.after = node.after
        node.after.before = node.before
        self._by_first.drop(node.first)


def split_span(shard_id: str, span: Node, failed: Sequence[UnresolvedRecord]) -> list[Node]:
    """The nodes that replace a pending `span`, in order: a pending node for each of its records, or
    ranges of records, that failed, and an acked node for each end of the span that did not.

    Between two that failed there is no node: the sequence numbers of the acked records there are
    not known. Raises `IllegalTrackerEventError` when the failed cannot be parts of the span.
    """
    first, last = failed[0].first, failed[-1].last
    whole = all(
        record.count >= 1 and (record.count == 1) == (record.first == record.last)
        for record in failed
    )
    ascending = all(not record.last < record.first for record in failed) and all(
        a.last < b.first for a, b in pairwise(failed)
    )
    inside = not first < span.first and not span.last < last
    total = sum(record.count for record in failed)
    ends_in_rest = (first != span.first) + (last != span.last)
    # A restored range counts its failed records only. Acked ones may lie between them, so its count
    # is not an upper bound.
    fits = span.detached or total + ends_in_rest <= span.count
    if not (whole and ascending and inside and fits and span.state is NodeState.PENDING):
        raise IllegalTrackerEventError(
            f"shard {shard_id}: {total} records from {first} to {last} cannot be split out of "
            f"the {span.count} records from {span.first} to {span.last} ({span.state.value})",
            "pass each record of the span once, in ascending order",
        )
    pieces = [
        Node(record.first, record.last, record.count, NodeState.PENDING, detached=True)
        for record in failed
    ]
    if first != span.first:
        pieces.insert(0, Node(span.first, span.first, 1, NodeState.ACKED))
    if last != span.last:
        pieces.append(Node(span.last, span.last, 1, NodeState.ACKED))
    return pieces


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
                f"the unresolved records {record.first} to {record.last} overlap records at or "
                f"before {floor}",
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
) -> ShardState:
    """`state` with the tracker's checkpoint, unresolved records and read position. O(nodes).

    The records at the end of the list that are pending in their first attempt are not stored. The
    read position is put before them instead, so a restart reads them as if for the first time. That
    delivers exactly the same records, and its size does not depend on how many are in flight.
    """
    tail = _unread_tail(nodes)
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
            unresolved.append(node.announced or stored_record(node))
    return replace(
        state,
        checkpoint=checkpoint,
        read_position=read_position,
        unresolved=tuple(unresolved),
    )


def stored_record(node: Node) -> UnresolvedRecord:
    """The stored form of an unresolved node. A record that never failed is due at once."""
    if node.record is not None:
        return node.record
    return UnresolvedRecord(
        first=node.first, last=node.last, count=node.count, attempts=0, due_ms=0
    )


def _unread_tail(nodes: NodeList) -> Node | None:
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
        and node.announced is None
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
            state, f"the read position {position} is before {floor}, which was already read"
        )
    return position.sequence if behind else None


def _contradiction(state: ShardState, what: str) -> StoredDataError:
    return StoredDataError(
        f"the stored state of shard {state.shard_id} contradicts itself ({what})",
        "restore the znode of the shard state from a backup, or move the shard with "
        "kinesis-spout checkpoint set",
    )
