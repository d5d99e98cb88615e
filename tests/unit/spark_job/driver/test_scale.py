"""What a batch asks of ZooKeeper by its shards and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.plan import ShardReadResult
from state.sequence_number import SequenceNumber
from state.task_log import TaskLog
from tests.support.simulated.simulated_driver import next_plan
from tests.support.simulated.simulated_job import APPLICATION, STREAM, simulated
from tests.support.state.counting_tree import counting_store

if TYPE_CHECKING:
    from spark_job.driver.coordinator import Coordinator
    from state.znodes.topics import StoreTopics


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
