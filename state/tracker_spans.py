"""Splitting the records that failed out of a span, the rest of which is acked."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.errors import IllegalTrackerEventError
from state.tracker_nodes import Node
from state.tracker_table import NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.sequence_number import SequenceNumber


def split_span(shard_id: str, span: Node, split_out: Sequence[SequenceNumber]) -> list[Node]:
    """The nodes that take the span's place: the records split out, with the span's attempts, and what is known of the rest.

    Known are its ends. Between two records split out nothing is known to be acked, so nothing is kept there.
    Raises `IllegalTrackerEventError` when they cannot be records of the span.
    """
    _check(shard_id, span, split_out)
    first = [] if split_out[0] == span.first else [Node(span.first, span.first, 1, NodeState.ACKED)]
    last = [] if split_out[-1] == span.last else [Node(span.last, span.last, 1, NodeState.ACKED)]
    return [*first, *(_record_of(span, sequence) for sequence in split_out), *last]


def _record_of(span: Node, sequence: SequenceNumber) -> Node:
    record = None if span.record is None else replace(span.record, first=sequence, last=sequence, count=1)
    return Node(sequence, sequence, 1, span.state, record, detached=True)


def _check(shard_id: str, span: Node, split_out: Sequence[SequenceNumber]) -> None:
    ascending = all(a < b for a, b in pairwise(split_out))
    inside = not split_out[0] < span.first and not span.last < split_out[-1]
    ends_in_rest = (split_out[0] != span.first) + (split_out[-1] != span.last)
    # A restored range may hold more records than the failed ones that it counts.
    fits = span.detached or len(split_out) + ends_in_rest <= span.count
    if not (ascending and inside and fits):
        raise IllegalTrackerEventError(
            f"shard {shard_id}: {len(split_out)} records from {split_out[0]} to {split_out[-1]} cannot be split out of"
            f" the {span.count} from {span.first} to {span.last} ({span.state.value}); pass records of it, ascending, each once"
        )
