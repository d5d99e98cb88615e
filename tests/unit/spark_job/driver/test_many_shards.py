"""Plans and logs of streams with very many shards fit into their znodes."""

from __future__ import annotations

from spark_job.driver.planner import PlanLimits, make_plan
from state.codec.values import MAX_VALUE_BYTES, encode
from state.plan import ShardReadResult
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.task_log import TaskLog

LIMITS = PlanLimits(
    max_records_per_trigger=None,
    max_records_per_shard=100_000,
    max_bytes_per_task=64 * 2**20,
    max_fetch_time_ms=5_000,
    max_search_time_ms=60_000,
    max_tasks=1,
)
LONGEST_ITERATOR = "i" * 512
NUMBER = SequenceNumber(10**56)


def test_a_task_has_no_more_shards_than_fit_into_the_znodes_of_its_plan_and_log() -> None:
    """More tasks than `maxTasks` are better than a plan, or the log of a task, that cannot be
    stored. A round has half of a znode: the log before it may have the other half.
    """
    names = [f"shardId-{index:012d}" for index in range(5_000)]
    plan = make_plan(
        "1-a",
        names,
        {name: ShardState(shard_id=name, read_position=Position.after(NUMBER)) for name in names},
        LIMITS,
        endings=dict.fromkeys(names, NUMBER),
        iterators=dict.fromkeys(names, LONGEST_ITERATOR),
        now_ms=0,
        until_ms=None,
        turn=1,
    )
    assert sorted(piece.shard_id for task in plan.tasks for piece in task.shards) == names
    for task in plan.tasks:
        assert len(encode(task, "task")) < MAX_VALUE_BYTES
        entries = tuple(
            ShardReadResult(
                shard_id=piece.shard_id,
                first=NUMBER,
                last=NUMBER,
                count=100_000,
                at_tip=True,
                tip_ms=10**13,
                last_arrival_ms=10**13,
                millis_behind_latest=86_400_000,
                iterator=LONGEST_ITERATOR,
            )
            for piece in task.shards
        )
        log = TaskLog(entries=entries, sealed=True)
        assert len(encode(log.without_hints(), "end")) < MAX_VALUE_BYTES // 2
        assert len(encode(log, "end")) < MAX_VALUE_BYTES
