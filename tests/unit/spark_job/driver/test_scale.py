"""What a batch asks of ZooKeeper by its shards and tasks, and how large its plan is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from spark_job.driver.coordinator import Coordinator
from spark_job.driver.planner import longest_round, max_bytes
from state.codec.values import encode_unchecked
from state.plan import PlannedRetry, ShardReadResult, ShardSlice, TaskPlan
from state.position import Position
from state.sequence_number import SequenceNumber
from state.state_store import StateChange
from state.task_log import TaskLog
from state.znodes.store import ZnodeStateStore
from state.znodes.tree import Check
from tests.support.simulated.simulated_driver import next_plan
from tests.support.simulated.simulated_job import shard, simulated
from tests.support.state.forwarding_tree import ForwardingTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.znodes.tree import Operation, Znode, ZnodeTree

LONGEST = SequenceNumber(10**129 - 1, 10**10 - 1)
LAST_HASH_KEY = str(2**128 - 1)
MAX_OPERATIONS = 500  # of one transaction, beside its checks


class CountingTree(ForwardingTree):
    """Counts transactions, the operations of each, and the nodes that are read."""

    def __init__(self, tree: ZnodeTree) -> None:
        super().__init__(tree)
        self.counts: Counter[str] = Counter()
        self.max_operations = 0

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        self.counts["state reads"] += sum(path.endswith("/state") for path in paths)
        self.counts["other reads"] += sum(not path.endswith("/state") for path in paths)
        return super().read(paths)

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        writes = [one for one in operations if not isinstance(one, Check)]
        states = sum(one.path.endswith("/state") for one in writes)
        self.counts["state transactions" if states else "transactions"] += bool(writes)
        self.counts["states"] += states
        self.max_operations = max(self.max_operations, len(writes))
        return super().commit(operations)


def run_batch(coordinator: Coordinator, store: ZnodeStateStore, start: str, last: int) -> str:
    """Plan a batch, and publish three records of each shard as its tasks do."""
    plan_id = next_plan(coordinator, start)
    for number, task in coordinator.tasks(plan_id).items():
        entries = tuple(
            ShardReadResult(
                shard_id=one.shard_id,
                first=SequenceNumber(last - 2),
                last=SequenceNumber(last),
                count=3,
                last_arrival_ms=coordinator._clock.now_ms(),
            )
            for one in task.shards
        )
        store.append_log(plan_id, number, TaskLog(entries=entries, sealed=True), None)
    return plan_id


@pytest.mark.parametrize(("shards", "tasks"), [(150, 8), (600, 32)])
def test_a_batch_writes_twice_a_task_and_its_states_in_transactions_of_hundreds(
    shards: int, tasks: int
) -> None:
    """The transactions: creating the plan and its tasks in one; a log for each task; closing,
    settling and removing the former plan. No state and no plan is read back.
    """
    with simulated(shards=shards) as job:
        settings = job.settings(max_tasks=tasks)
        inner = job.store()
        tree = CountingTree(inner._tree)
        store = ZnodeStateStore(tree, inner._paths, reset_command="-")
        coordinator = Coordinator(settings, job.services(settings, store))
        job.opened.append(coordinator)
        start = run_batch(coordinator, store, "", 103)
        start = run_batch(coordinator, store, start, 106)
        tree.counts.clear()
        run_batch(coordinator, store, start, 109)
        assert tree.counts["transactions"] <= 2 * tasks
        assert tree.counts["transactions"] <= tasks + 6
        assert tree.counts["states"] == shards
        assert tree.counts["state transactions"] == -(-shards // 500)
        assert tree.counts["state reads"] == 0
        assert tree.counts["other reads"] <= tasks + 20
        assert tree.max_operations <= 2 * MAX_OPERATIONS


def test_states_that_are_not_as_the_driver_remembers_them_are_loaded_and_settled() -> None:
    """As after a write whose answer was lost."""
    with simulated(shards=9) as job:
        store = job.store()
        coordinator = Coordinator(job.settings(probe_max_shards=0), job.services(store=store))
        job.opened.append(coordinator)
        start = run_batch(coordinator, store, "", 103)
        stored = store.load_states()[shard(7)]
        changed = replace(stored.state, parents=("shardId-000000009999",))
        store.save_states([StateChange(before=stored, after=changed)])
        run_batch(coordinator, store, start, 106)
        states = job.states()
        assert {state.checkpoint for state in states.values()} == {SequenceNumber(103)}
        assert states[shard(7)].parents == ("shardId-000000009999",)


@pytest.mark.parametrize("name", ["", "shardId-000000000000", "s" * 128])
@pytest.mark.parametrize("hint", [None, "i" * 512])
@pytest.mark.parametrize("retries", [0, 1, 5])
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
