"""The tracker's linked hash map: nodes in a doubly linked list in emission order, and a hash map
over the same nodes.

The list is a ring through a sentinel node, so no operation has a special case for the list's ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.collections.shrinking_dict import ShrinkingDict
from state.sequence_number import SequenceNumber
from state.tracker.transitions import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from state.shard_state import UnresolvedRecord


class Node:
    """A node of the list: a record, or a span of `count` records from `first` to `last`, both
    inclusive.

    - `record`: its failures so far, as they are stored. None for a node that has not failed, in
      this process or before a restart.
    - `uncounted`: the failure of its latest delivery did not count as an attempt. So there was one
      delivery more than `attempts` says.
    - `detached`: it was split out or restored, so records may lie between it and its neighbours in
      the list.
    - `below`: of an acked node, the greatest known number in its run of acked records that lies in
      an earlier Kinesis record than `last`; None without one. The checkpoint needs it while user
      records of `last`'s aggregate are unresolved.
    """

    __slots__ = (
        "after",
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
        self.below = None if first is last or first.shares_record(last) else first

    def follow(self, before: Node) -> None:
        """`before` ends directly before this node. If both are acked, they are one run."""
        if before.state is self.state is NodeState.ACKED and self.below is None:
            below = before.below if before.last.shares_record(self.last) else before.last
            self.below = below

    @property
    def attempts(self) -> int:
        """Number of deliveries whose failure counted; the next delivery is attempt `attempts +
        1`.
        """
        return 0 if self.record is None else self.record.attempts

    @property
    def deliveries(self) -> int:
        """The highest attempt for which an outcome may still arrive; 0 once the node is acked."""
        if self.state is NodeState.PENDING:
            return self.attempts + 1
        return 0 if self.state is NodeState.ACKED else self.attempts + self.uncounted


class NodeList:
    """The nodes in order, and by the sequence number of their first record. Every operation is
    O(1), except for iteration.
    """

    def __init__(self) -> None:
        self._by_first: ShrinkingDict[SequenceNumber, Node] = ShrinkingDict()
        self.sentinel = Node(SequenceNumber(0), SequenceNumber(0), 0, NodeState.NONE)
        self.sentinel.before = self.sentinel.after = self.sentinel

    def __len__(self) -> int:
        return len(self._by_first)

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
