"""What a batch asks of ZooKeeper by its shards and tasks, and how large its plan is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_job.driver.planner import longest_round, max_bytes
from state.codec.values import encode_unchecked
from state.plan import PlannedRetry, ShardReadResult, ShardSlice, TaskPlan
from state.position import Position
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.support.simulated.simulated_driver import next_plan
from tests.support.simulated.simulated_job import APPLICATION, STREAM, simulated
from tests.support.state.trees import counting_store

if TYPE_CHECKING:
    from spark_job.driver.coordinator import Coordinator
    from state.znodes.topics import StoreTopics

LONGEST = SequenceNumber(10**129 - 1, 10**10 - 1)
LAST_HASH_KEY = str(2**128 - 1)


def run_batch(coordinator: Coordinator, store: StoreTopics, start: str, last: int) -> str:
    """Plan a batch, and publish three records of each shard as its tasks do."""
    plan_id = next_plan(coordinator, start)
    for number, task in coordinator.tasks(plan_id).items():
        first, end = SequenceNumber(last - 2), SequenceNumber(last)
        entries = tuple(
            ShardReadResult(shard_id=one.shard_id, first=first, last=end, count=3)
            for one in task.shards
        )
        store.plans.append_log(plan_id, number, TaskLog(entries=entries, sealed=True), None)
    return plan_id


def test_a_batch_writes_once_a_task_and_its_states_in_transactions_of_hundreds() -> None:
    """Creating the plan and its tasks is one transaction; so are a log for each task, closing, each
    five hundred states, and settling. What is read does not grow with the shards.
    """
    with simulated(shards=600) as job:
        store, tree = counting_store(job.backend, application=APPLICATION, stream=STREAM)
        coordinator = job.coordinator(store=store, max_tasks=8)
        start = run_batch(coordinator, store, "", 103)
        start = run_batch(coordinator, store, start, 106)
        reads, writes = tree.cost_of(lambda: run_batch(coordinator, store, start, 109))
        assert writes <= 1 + 8 + 1 + 2 + 1 + 1
        assert reads <= 8 + 7


@pytest.mark.parametrize("name", ["", "s" * 128])
@pytest.mark.parametrize("hint", [None, "i" * 512])
@pytest.mark.parametrize("retries", [0, 5])
@pytest.mark.parametrize("shards", [1, 250])
def test_the_bounds_of_a_task_lie_above_the_longest_values(
    name: str, hint: str | None, retries: int, shards: int
) -> None:
    """A task within its bounds is stored without being measured."""
    retry = PlannedRetry(
        first=LONGEST,
        last=LONGEST,
        count=10**9,
        attempts=10**9,
        exhausted=True,
        whole=True,
        max_records=10**9,
    )
    piece = ShardSlice(
        shard_id=name,
        position=Position.after(LONGEST),
        max_records=10**9,
        iterator=hint,
        ending_sequence=LONGEST,
        retries=(retry,) * retries,
        verified_until_ms=10**13,
        gone=True,
        hash_keys=(LAST_HASH_KEY, LAST_HASH_KEY),
    )
    task = TaskPlan(
        shards=(piece,) * shards,
        max_bytes=10**13,
        fetch_time_ms=10**9,
        fetch_cap_ms=10**9,
        retention_ms=10**13,
        aggregated_records="unpack",
    )
    plan_bytes, round_bytes = max_bytes(task)
    overhead = 200  # of a task, whatever its shards
    assert len(encode_unchecked(task)) <= plan_bytes + overhead
    assert len(encode_unchecked(longest_round(task))) <= round_bytes + overhead
