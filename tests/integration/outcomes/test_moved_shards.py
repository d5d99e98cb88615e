"""A Spark query that goes on with its old checkpoint location after its shards were moved."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.checkpoints.application_moves import find_moves, write_moves
from kinesis_spout.checkpoints.wanted_position import WantedPosition
from kinesis_spout.clock import SystemClock
from kinesis_spout.service.client import KinesisClient
from state.owner.ownership import this_process
from tests.support.outcomes.tracked import FAST, TrackedQuery, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_job import TrackedBatch
    from state.zookeeper.store import ZookeeperStateStore

pytestmark = pytest.mark.spark


def move(tracked_query: TrackedQuery, store: ZookeeperStateStore, to: str, *shards: str) -> None:
    settings = tracked_query.stream.settings()
    with closing(KinesisClient(settings.aws, settings.stream)) as client:
        store.acquire(this_process(0), timeout_s=30)
        wanted = WantedPosition.parse(to)
        found = find_moves(client, store, wanted, shards, clock=SystemClock(), max_counted=1000)
        write_moves(store, found, clock=SystemClock())
        store.release()


def test_a_query_goes_on_from_where_its_shards_were_moved(
    tracked_query: TrackedQuery, store: ZookeeperStateStore
) -> None:
    """With the same checkpoint location: the next batch has exactly what was asked for."""
    tracked_query.stream.put(10)
    first: list[int] = []
    tracked_query.run_quietly(first)
    assert sorted(first) == list(range(10))
    (shard, sequences), *_ = sorted(tracked_query.stream.records.items())
    move(tracked_query, store, f"AT:{sequences[2]}", shard)
    again: list[int] = []
    tracked_query.run_quietly(again)
    assert len(again) == len(sequences) - 2
    assert set(again) < set(first)
    nothing: list[int] = []
    tracked_query.run_quietly(nothing)
    assert nothing == []
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_a_batch_that_spark_replays_does_not_undo_a_move(
    tracked_query: TrackedQuery, store: ZookeeperStateStore
) -> None:
    """It was processed and reported, and not committed. Its function is not called again, and its
    plan is settled nowhere: all records come once more, though they were moved to where they were
    read from.
    """
    tracked_query.stream.put(10)
    sink: dict[int, list[int]] = {}
    src = tracked_query.stream.source()

    def start(*, commits: bool) -> Any:
        def process(batch: TrackedBatch) -> None:
            sink.setdefault(batch.id, []).extend(numbers(batch.df))

        tracked = src.tracked(process, on_exhausted="drop", **FAST)

        def run(frame: DataFrame, batch_id: int) -> None:
            tracked(frame, batch_id)
            if not commits:
                raise KeyError("not committed")

        writer = src.read_stream(tracked_query.spark).writeStream.foreachBatch(run)
        return (
            writer.option("checkpointLocation", str(tracked_query.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    with pytest.raises(Exception, match="not committed"):
        start(commits=False).awaitTermination(120)
    move(tracked_query, store, "TRIM_HORIZON")
    assert start(commits=True).awaitTermination(120)
    assert {batch: sorted(rows) for batch, rows in sink.items()} == {
        0: list(range(10)),
        1: list(range(10)),
    }
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()
