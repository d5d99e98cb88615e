"""With block_key and block_shard, records wait for a failed one also in the shards that continue
its shard. In simulated time.
"""

from __future__ import annotations

from typing import Any

import pytest

from spark_job.driver.outcome_summary import RetryQueue
from state.position import SHARD_END, TRIM_HORIZON
from state.report import OnFailure
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from tests.support.simulated.played_outcomes import policy, tracked
from tests.support.simulated.simulated_driver import next_plan, track_all
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard

NOW_MS = 0


def record(first: int, last: int | None = None, **rest: Any) -> UnresolvedRecord:
    last = first if last is None else last
    given = {"attempts": 1, "due_ms": 0, "count": last - first + 1} | rest
    return UnresolvedRecord(first=SequenceNumber(first), last=SequenceNumber(last), **given)


def states(
    *of_ancestor: UnresolvedRecord, of_shard: tuple[UnresolvedRecord, ...] = ()
) -> dict[str, ShardState]:
    """A shard, its parent, where nothing is unresolved, and the parent of that."""
    return {
        "s": ShardState(
            shard_id="s", read_position=TRIM_HORIZON, parents=("p",), unresolved=of_shard
        ),
        "p": ShardState(shard_id="p", read_position=SHARD_END, parents=("a",)),
        "a": ShardState(shard_id="a", read_position=SHARD_END, unresolved=of_ancestor),
    }


def due(queue: RetryQueue, now_ms: int = 0) -> dict[str, list[int]]:
    return {
        shard_id: [one.retry.first.sequence for one in retries]
        for shard_id, retries in queue.due(now_ms).items()
    }


@pytest.mark.parametrize(
    ("on_failure", "of_ancestor", "found", "held"),
    [
        (OnFailure.CONTINUE, record(1, 9), [10, 11, 12], False),
        (OnFailure.BLOCK_KEY, record(1, key="a"), [11], False),
        (OnFailure.BLOCK_KEY, record(1, 9), [], True),
        (OnFailure.BLOCK_SHARD, record(1, key="a"), [], True),
    ],
    ids=["continue", "the same key", "a range, whose keys are not known", "the shard"],
)
def test_retries_and_new_records_wait_for_an_ancestors_unresolved_record_that_blocks_them(
    on_failure: OnFailure, of_ancestor: UnresolvedRecord, found: list[int], *, held: bool
) -> None:
    """However long ago they were due themselves. Once the ancestor's record is settled, they are.
    No new record of the shard is read while all of it is blocked.
    """
    of_shard = (record(10, key="a"), record(11, key="b"), record(12, key="a"))
    queue = RetryQueue()
    queue.update(states(of_ancestor, of_shard=of_shard), policy(on_failure), NOW_MS)
    ancestors = {"a": [of_ancestor.first.sequence]}
    assert due(queue, 10**15) == (ancestors | {"s": found} if found else ancestors)
    assert queue.is_full("p", 100) is held
    queue.update(states(of_shard=of_shard), policy(on_failure), NOW_MS)
    assert due(queue) == {"s": [10, 11, 12]}
    queue.update(states(), policy(on_failure), NOW_MS)
    assert not queue.is_full("s", 100)


def test_a_retry_that_waits_for_an_ancestor_costs_no_plans(one: SimulatedJob) -> None:
    """It would be planned and blocked again at every poll."""
    one.put(3)
    one.fake.split(STREAM, shard(0))
    one.clock.advance(1)
    one.put(3)
    outcomes = tracked(
        one,
        lambda row: row["data"] == b"record 1" and row["shardId"] == shard(0),
        policy(OnFailure.BLOCK_KEY, first_delay_ms=3_600_000, max_delay_ms=3_600_000),
    )
    coordinator = one.coordinator(idle_wait="0s")
    start, _ = track_all(one, coordinator, outcomes)
    assert len(outcomes.done) <= 3
    one.clock.advance(60)
    assert next_plan(coordinator, start) == start
