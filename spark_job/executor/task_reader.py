"""An executor's task: read, publish the result, then return the rows; or replay the result that
was published before.

The end of a batch is not planned: Kinesis cannot tell where a shard ends. The first attempt that
reads finds it. The result is published before the first row is returned, and so binds every later
attempt (a retry, a second action, a replay after a crash) to the same rows in the same order.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spark_job.executor.first_read import Held, collect
from spark_job.executor.replay import replay
from spark_job.rows import to_rows
from state.codec.values import MAX_VALUE_BYTES, encode_unchecked
from state.failpoint import failpoint
from state.plan import TaskPlan, TaskResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings

log = logging.getLogger("kinesis_spout")
TOKEN_BYTES = 8


def read_task(
    plan_id: str, task: int, plan: TaskPlan, *, services: ProcessServices, settings: SourceSettings
) -> Iterator[pa.RecordBatch]:
    """The task's rows as Arrow batches, in the plan's order of shards, each shard's retries first.
    Blocks on Kinesis and ZooKeeper.

    Raises `state.errors.PlanClosedError` when the plan was closed before this attempt could
    publish, `DataLossError` when published records are gone.
    """
    published = services.store.read_end(plan_id, task)
    if published is None:
        held = collect(plan, services, settings)
        end = fitting(
            TaskResult(
                token=secrets.token_hex(TOKEN_BYTES), shards=tuple(shard.end for shard in held)
            )
        )
        published = services.store.publish_end(plan_id, task, end)
        failpoint("end-published")
        if published.token == end.token:
            return _rows(held, settings)
        log.info(
            "task %d of plan %s: another attempt has published first; reading the records that it "
            "read",
            task,
            plan_id,
        )
    return replay(published, plan, services, settings)


def fitting(end: TaskResult) -> TaskResult:
    """The result, without the hinted iterators if it is too large for a znode with them. Without
    them it fits: the planner sees to that.
    """
    if len(encode_unchecked(end)) <= MAX_VALUE_BYTES:
        return end
    return replace(end, shards=tuple(replace(shard, iterator=None) for shard in end.shards))


def _rows(held: Sequence[Held], settings: SourceSettings) -> Iterator[pa.RecordBatch]:
    """Each shard's retries, then its new records. A batch is released when it is returned."""
    stream = settings.stream.name
    for shard in held:
        while shard.retries:
            delivery = shard.retries.popleft()
            yield to_rows(
                delivery.records,
                stream=stream,
                shard_id=shard.end.shard_id,
                attempts=delivery.attempts,
            )
        while shard.pages:
            yield to_rows(shard.pages.popleft().records, stream=stream, shard_id=shard.end.shard_id)
