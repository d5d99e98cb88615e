"""Splits the failed records out of a span whose other records are acked."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from state.errors import IllegalTrackerEventError
from state.tracker.nodes import Node
from state.tracker.transitions import NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.shard_state import UnresolvedRecord


def split_span(shard_id: str, span: Node, failed: Sequence[UnresolvedRecord]) -> list[Node]:
    """The nodes that replace a pending `span`, in order: a pending node for each of its records, or
    ranges of records, that failed, and an acked node for each end of the span that did not.

    Between two that failed there is no node: the sequence numbers of the acked records there are
    not known. Raises `IllegalTrackerEventError` when the failed cannot be parts of the span.
    """
    _check(shard_id, span, failed)
    pieces = [
        Node(record.first, record.last, record.count, NodeState.PENDING, detached=True)
        for record in failed
    ]
    if failed[0].first != span.first:
        pieces.insert(0, Node(span.first, span.first, 1, NodeState.ACKED))
    if failed[-1].last != span.last:
        pieces.append(Node(span.last, span.last, 1, NodeState.ACKED))
    return pieces


def _check(shard_id: str, span: Node, failed: Sequence[UnresolvedRecord]) -> None:
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
            f"the {span.count} records from {span.first} to {span.last} ({span.state.value}); pass "
            "records of that span, ascending, each once"
        )
