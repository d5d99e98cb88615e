"""Short constructors for tests of the tracker: numbers instead of sequence numbers, and a view of
its nodes.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

from state.position import TRIM_HORIZON
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.tracker.inflight_record_tracker import InflightRecordTracker
from state.tracker.transitions import NodeState

SHARD = "shardId-000000000000"
# Retries are due 100, 200, 400 ... ms after the failure, exactly.
POLICY = RetryPolicy(retry_limit=3, first_delay_ms=100, growth=2, max_delay_ms=1_000, jitter=0)


def seeded(seed: int = 0) -> Random:
    return Random(seed)  # noqa: S311  # it spreads retries, it hides nothing


def seq(number: int, sub: int = 0) -> SequenceNumber:
    return SequenceNumber(number, sub)


def fresh_state() -> ShardState:
    return ShardState(shard_id=SHARD, read_position=TRIM_HORIZON)


def make_tracker(
    *emitted: int, state: ShardState | None = None, policy: RetryPolicy = POLICY
) -> InflightRecordTracker:
    """A tracker that has emitted these numbers, each in its first attempt."""
    tracker = InflightRecordTracker(state or fresh_state(), retry_policy=policy, random=seeded())
    for number in emitted:
        tracker.emit(seq(number))
    return tracker


def restart(tracker: InflightRecordTracker, policy: RetryPolicy = POLICY) -> InflightRecordTracker:
    """The tracker of a new process, from the stored state only."""
    return make_tracker(state=tracker.snapshot(), policy=policy)


def take_retry(
    tracker: InflightRecordTracker, now_ms: int, *, deadline_ms: int | None = None
) -> tuple[SequenceNumber, int] | None:
    """Emit the first retry that is due, as readers do: its number and attempt. None without one."""
    sequence = tracker.due_retry(now_ms)
    if sequence is None:
        return None
    return sequence, tracker.retry(sequence, deadline_ms=deadline_ms)


def nodes(tracker: InflightRecordTracker) -> list[tuple[int, NodeState]]:
    """Number and state of each node in order. Memory use shows nowhere else."""
    return [(node.first.sequence, node.state) for node in tracker._nodes]


def check_structure(tracker: InflightRecordTracker) -> None:
    """List and map hold the same nodes in ascending order; no two neighbours are acked, nor is the
    first node. What waits for an outcome waits for a node's.
    """
    listed = list(tracker._nodes)
    assert {node.first: node for node in listed} == tracker._nodes._by_first
    assert all(a.after is b and b.before is a and a.last < b.first for a, b in pairwise(listed))
    acked = [node.state is NodeState.ACKED for node in listed]
    assert not any(a and b for a, b in pairwise(acked)), "two acked neighbours"
    assert not listed or not acked[0], "the first node is acked"
    for state in (NodeState.PENDING, NodeState.QUEUED, NodeState.EXHAUSTED):
        assert tracker.count(state) == sum(node.count for node in listed if node.state is state)
    assert set(tracker._retries._due_ms) == {
        node.first for node in listed if node.state is NodeState.QUEUED
    }
    assert set(tracker._exhausted) == {
        node.first for node in listed if node.state is NodeState.EXHAUSTED
    }
    assert all(node.announced is None or node.state is NodeState.PENDING for node in listed)
