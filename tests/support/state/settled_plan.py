"""A plan of two tasks over three shards, partly published, in a memory store: for tests of settling
it.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from spark_job.driver.settle_plan import Settled, settle
from state.memory_store import MemoryBackend, MemoryStateStore
from state.plan import ChildShard, Plan, ShardReadResult, ShardSlice, TaskPlan
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.ownership import OwnerInfo
from state.store.shard_states import StateChange
from state.task_log import TaskLog

if TYPE_CHECKING:
    from state.znodes.topics import StoreTopics

PLAN = "3-ab"
OWNER = OwnerInfo(host="host", pid=1, since_ms=0)
PARENT, OTHER, UNREAD, CHILDREN = "shardId-0", "shardId-1", "shardId-2", ("shardId-3", "shardId-4")
LOGS = (
    TaskLog(
        entries=(
            ShardReadResult(
                shard_id=PARENT, first=SequenceNumber(10), last=SequenceNumber(14), count=3
            ),
            ShardReadResult(
                shard_id=OTHER,
                first=SequenceNumber(20),
                last=SequenceNumber(29),
                count=2,
                last_arrival_ms=600,
            ),
            ShardReadResult(
                shard_id=PARENT,
                first=SequenceNumber(16),
                last=SequenceNumber(19),
                count=1,
                at_shard_end=True,
                tip_ms=700,
                children=tuple(ChildShard(shard_id=child, parents=(PARENT,)) for child in CHILDREN),
            ),
        ),
        sealed=True,
    ),
    TaskLog(
        entries=(
            ShardReadResult(
                shard_id=UNREAD, first=SequenceNumber(30), last=SequenceNumber(39), count=5
            ),
        ),
        sealed=True,
    ),
)


def backend_with_plan(*published: int) -> MemoryBackend:
    """Three shards, an open plan of two tasks over them, and the logs of some of the tasks."""
    backend = MemoryBackend()
    store = opened(backend)
    store.shard_states.save(
        [
            StateChange(before=None, after=ShardState(shard_id=s, read_position=TRIM_HORIZON))
            for s in (PARENT, OTHER, UNREAD)
        ]
    )
    groups = ((PARENT, OTHER), (UNREAD,))
    tasks = tuple(
        TaskPlan(
            shards=tuple(
                ShardSlice(shard_id=one, position=TRIM_HORIZON, max_records=100) for one in group
            ),
            max_bytes=1,
            fetch_time_ms=1,
            fetch_cap_ms=1,
        )
        for group in groups
    )
    store.plans.create(Plan(plan_id=PLAN, created_ms=1, tasks=tasks))
    for task in published:
        store.plans.append_log(PLAN, task, LOGS[task], None)
    store.close()
    return backend


def opened(backend: MemoryBackend) -> MemoryStateStore:
    store = MemoryStateStore(backend)
    store.ownership.acquire(OWNER, timeout_s=1)
    return store


def states_in(store: StoreTopics) -> dict[str, ShardState]:
    return {shard: stored.state for shard, stored in store.shard_states.load().items()}


def settled(backend: MemoryBackend) -> Settled:
    """Settle the plan by a process that ends afterwards."""
    with closing(opened(backend)) as store:
        return settle(store.plans, store.shard_states, store.reports, PLAN)
