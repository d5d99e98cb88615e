"""Splits the failed records out of a span whose other records are acked."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.errors import IllegalTrackerEventError
from state.tracker.nodes import Node
from state.tracker.transitions import NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.sequence_number import SequenceNumber


@dataclass(frozen=True, slots=True)
class Run:
    """One record of a span, or a range of `count` consecutive ones, from `first` to `last`
    inclusive.
    """

    first: SequenceNumber
    last: SequenceNumber
    count: int


def split_span(shard_id: str, span: Node, split_out: Sequence[Run]) -> list[Node]:
    """The nodes that replace `span`, in order: one for each run, in the span's state and with its
    attempts, and an acked node for each end of the span that is not in a run.

    Between two runs there is no node: the sequence numbers of the acked records there are not
    known. Raises `IllegalTrackerEventError` when the runs cannot be parts of the span.
    """
    _check(shard_id, span, split_out)
    first = (
        []
        if split_out[0].first == span.first
        else [Node(span.first, span.first, 1, NodeState.ACKED)]
    )
    last = (
        [] if split_out[-1].last == span.last else [Node(span.last, span.last, 1, NodeState.ACKED)]
    )
    return [*first, *(_node_of(span, run) for run in split_out), *last]


def _node_of(span: Node, run: Run) -> Node:
    record = (
        None
        if span.record is None
        else replace(span.record, first=run.first, last=run.last, count=run.count)
    )
    return Node(run.first, run.last, run.count, span.state, record, detached=True)


def _check(shard_id: str, span: Node, split_out: Sequence[Run]) -> None:
    first, last = split_out[0].first, split_out[-1].last
    whole = all(run.count >= 1 and (run.count == 1) == (run.first == run.last) for run in split_out)
    ascending = all(not run.last < run.first for run in split_out) and all(
        a.last < b.first for a, b in pairwise(split_out)
    )
    inside = not first < span.first and not span.last < last
    total = sum(run.count for run in split_out)
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
