"""A task's result fits into its znode."""

from __future__ import annotations

import pytest

from spark_job.executor.task_reader import fitting
from state.codec.values import MAX_VALUE_BYTES, encode
from state.plan import ShardReadResult, TaskResult
from state.sequence_number import SequenceNumber


def result(*, iterator_length: int) -> TaskResult:
    return TaskResult(
        token="t",
        shards=tuple(
            ShardReadResult(
                shard_id=f"shardId-{number:012}",
                iterator="i" * iterator_length,
                retries_done=4,
                retries_gone=tuple(SequenceNumber(10**55 + n) for n in range(4)),
            )
            for number in range(500)
        ),
    )


@pytest.mark.parametrize("iterator_length", [100, 512, 1_500])
def test_a_result_that_is_too_large_is_published_without_its_hints(iterator_length: int) -> None:
    published = fitting(result(iterator_length=iterator_length))
    assert len(encode(published, "end")) <= MAX_VALUE_BYTES
    assert [bool(shard.iterator) for shard in published.shards] == [iterator_length < 1_000] * 500
    assert [shard.retries_gone for shard in published.shards] == [
        shard.retries_gone for shard in result(iterator_length=1).shards
    ]
