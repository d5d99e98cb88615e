"""The tracker's linked hash map: nodes in a doubly linked list in emission order, and a hash map
over the same nodes; and what replaces a node whose span failed in part.

The list is a ring through a sentinel node, so no operation has a special case for the list's ends.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from state.collections import ShrinkingDict
from state.errors import IllegalTrackerEventError
from state.sequence_number import SequenceNumber
from state.tracker.transitions import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


def split_span(shard_id: str, span: Node, failed: Sequence[UnresolvedRecord]) -> list[Node]:
    """The nodes that replace a pending `span`, in order: a pending node for each of its records, or
    ranges of records, that failed, and an acked node for each end of the span that did not.

    Between two that failed there is no node: the sequence numbers of the acked records there are
    not known. Raises `IllegalTrackerEventError` when the failed cannot be parts of the span.
    """
    _check_parts(shard_id, span, failed)
    pieces = [
        Node(record.first, record.last, record.count, NodeState.PENDING, detached=True)
        for record in failed
    ]
    if failed[0].first != span.first:
        pieces.insert(0, Node(span.first, span.first, 1, NodeState.ACKED))
    if failed[-1].last != span.last:
        pieces.append(Node(span.last, span.last, 1, NodeState.ACKED))
    return pieces


def _check_parts(shard_id: str, span: Node, failed: Sequence[UnresolvedRecord]) -> None:
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
    if not (whole and ascending and inside and fits):
        raise IllegalTrackerEventError(
            f"shard {shard_id}: {total} records from {first} to {last} cannot be split out of "
            f"the {span.count} records from {span.first} to {span.last} ({span.state.value})",
            "pass records of that span, ascending, each once",
        )
