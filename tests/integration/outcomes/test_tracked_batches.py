"""Tracked batches on a real Spark: reports that count, frames that are refused, partial reads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import ConfigError
from state.process import this_process
from tests.support.outcomes.acker import source_frame
from tests.support.outcomes.tracked import TrackedBatches, number, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from spark_job import TrackedBatch
    from state.zookeeper.store import ZookeeperStateStore

pytestmark = pytest.mark.spark


def test_a_batch_that_is_replayed_past_the_retention_is_not_refused_for_ever(
    tracked_batches: TrackedBatches, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first records have expired since its tasks read them, and `failOnDataLoss` is false. What
    is left comes with the next plan.
    """
    stream = tracked_batches.stream
    stream.put(10)
    stream.clock.advance(20 * 3600)
    stream.put(10)

    def fail(batch: TrackedBatch) -> None:
        assert batch.df.count() == 20
        raise ConnectionError("down")

    with pytest.raises(Exception, match="down"):
        tracked_batches.run(fail)
    stream.clock.advance(5 * 3600)
    batches: list[list[int]] = []
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        tracked_batches.run(
            lambda batch: batches.append(sorted(numbers(batch.df))),
            source={"fail_on_data_loss": False},
        )
    assert batches == [list(range(10, 20)), list(range(10, 20))]
    assert "nothing of this batch is acked, and the next plan reads what is left" in caplog.text
    assert stream.checkpoints() == stream.tips()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda frame: frame.drop("messageId"), "messageId"),
        (lambda frame: frame.select("messageId", "data"), "streamName, shardId"),
        (lambda frame: frame.withColumnRenamed("shardId", "shard"), "shardId"),
    ],
)
def test_a_frame_that_has_lost_columns_is_refused_at_once(
    tracked_batches: TrackedBatches, change: Callable[[DataFrame], DataFrame], named: str
) -> None:
    ran: list[object] = []
    tracked = tracked_batches.stream.source().tracked(ran.append, on_exhausted="drop")
    with pytest.raises(ConfigError, match=f"no column {named}"):
        tracked(change(source_frame(tracked_batches.spark, ["a"])), 0)
    assert ran == []


def test_rows_that_were_filtered_before_the_function_fail_the_batch(
    tracked_batches: TrackedBatches,
) -> None:
    """Otherwise they would be acked unseen. Columns may be added."""
    tracked_batches.stream.put(20)
    src = tracked_batches.stream.source()
    rows: list[int] = []
    tracked = src.tracked(
        lambda batch: rows.extend(row.n for row in batch.df.collect()), on_exhausted="drop"
    )

    def numbered(frame: DataFrame, condition: str) -> DataFrame:
        return frame.withColumn("n", number()).where(condition)

    with pytest.raises(
        Exception, match=r"frame holds .* of shard .* published .*filter and deduplicate inside"
    ):
        tracked_batches.play(src, lambda frame, batch: tracked(numbered(frame, "n > 5"), batch))
    assert tracked_batches.stream.checkpoints() == {}
    rows.clear()
    tracked_batches.play(src, lambda frame, batch: tracked(numbered(frame, "n >= 0"), batch))
    assert sorted(rows) == list(range(20))


def test_two_batches_in_a_row_without_a_report_end_the_query_and_say_what_to_do(
    tracked_batches: TrackedBatches, store: ZookeeperStateStore
) -> None:
    """The first one is delivered again. With `whole_batch_ack` the application is no longer
    tracked, and records that were queued are acked once they are read.
    """
    stream, seen = tracked_batches.stream, []
    stream.put(10)
    tracked_batches.run(
        lambda batch: batch.fail(batch.df.where(number() == 3), "later", after_s=1),
        source={"available_now_retry_wait": "0s"},
        retry_limit=1_000,
    )
    stream.put(10)

    def untracked(frame: DataFrame, _batch: int) -> None:
        seen.append({n for n in numbers(frame) if n >= 10})

    with pytest.raises(ConfigError, match=r"src\.tracked.*wholeBatchAck"):
        tracked_batches.play(stream.source(), untracked)
    assert seen == [set(range(10, 20))] * 2
    assert stream.checkpoints() != stream.tips()
    tracked_batches.play(stream.source(whole_batch_ack=True), untracked)
    assert stream.checkpoints() == stream.tips()
    assert tracked_batches.unresolved() == {}
    assert store.reports.read_policy() is None


def close_plan(store: ZookeeperStateStore, *, stays_tracked: bool = True) -> None:
    """As a process that takes the application over, while the query is down."""
    pointer = store.plans.pointer()
    assert pointer is not None
    store.ownership.acquire(this_process(0), timeout_s=30)
    store.plans.close(pointer.id)
    if not stays_tracked:
        store.reports.clear_policy()
    store.ownership.release()


def stopped(_batch: TrackedBatch) -> None:
    raise KeyError("stopped here")


@pytest.mark.parametrize("was_tracked", [True, False])
def test_a_batch_of_a_closed_plan_is_not_reported(
    tracked_batches: TrackedBatches,
    store: ZookeeperStateStore,
    caplog: pytest.LogCaptureFixture,
    *,
    was_tracked: bool,
) -> None:
    """The shard states bring its records again, so its failures are only logged. Also where it is
    the application's first batch, so that nothing in ZooKeeper says yet that it is tracked.
    """
    tracked_batches.stream.put(10)
    with pytest.raises(KeyError, match="stopped here"):
        tracked_batches.run(stopped)
    close_plan(store, stays_tracked=was_tracked)
    rows: list[list[int]] = []

    def process(batch: TrackedBatch) -> None:
        rows.append(sorted(numbers(batch.df)))
        if len(rows) == 1:
            batch.fail(batch.df.where(number() == 3), "bad", retry=False)

    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        tracked_batches.run(process)
    assert "1 of them failed" in caplog.text
    assert tracked_batches.letters == []
    assert rows == 2 * [list(range(10))]


def test_a_batch_that_was_reported_before_its_plan_was_closed_is_not_run_again(
    tracked_batches: TrackedBatches, store: ZookeeperStateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark has not committed it, so it replays the batch. The report holds: a record that failed
    in the replay alone would be acked, and missing from a sink that overwrites by batch.
    """
    tracked_batches.stream.put(10)
    rows: list[int] = []
    with pytest.raises(KeyError, match="not committed"):
        tracked_batches.run_quietly(rows, commits=False)
    close_plan(store)
    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        tracked_batches.run_quietly(rows)
    assert "the function is not called again" in caplog.text
    assert sorted(rows) == list(range(10))
    assert tracked_batches.stream.checkpoints() == tracked_batches.stream.tips()


def test_the_report_of_another_batch_does_not_hold_for_a_replay(
    tracked_batches: TrackedBatches, store: ZookeeperStateStore
) -> None:
    """A batch whose plan was closed without a report runs again, whatever was reported before."""
    tracked_batches.stream.put(10)
    tracked_batches.run_quietly([])
    tracked_batches.stream.put(10)
    with pytest.raises(KeyError, match="stopped here"):
        tracked_batches.run(stopped)
    reported, unreported = store.plans.known()
    assert store.reports.read(reported) is not None
    assert store.reports.read(unreported) is None
    close_plan(store)
    rows: list[list[int]] = []
    tracked_batches.run(lambda batch: rows.append(sorted(numbers(batch.df))))
    assert rows == 2 * [list(range(10, 20))]
