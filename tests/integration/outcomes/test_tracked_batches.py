"""Tracked batches on a real Spark: reports that count, frames that are refused, partial reads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from spark_job.tracking.tracked_batch import current_batch
from state.owner.ownership import this_process
from state.report import PlanReport
from tests.support.outcomes.tracked import FAST, TrackedQuery, number, numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from spark_job import TrackedBatch
    from state.zookeeper.store import ZookeeperStateStore

pytestmark = pytest.mark.spark


def test_a_report_that_is_opened_again_means_redelivery(
    tracked_query: TrackedQuery, store: ZookeeperStateStore
) -> None:
    """A report that another process opens again, after it was done, does not count any more."""
    tracked_query.stream.put(10)
    rows: list[int] = []

    class Losing:
        """Opens the report of the first batch again, before Spark asks for the next offset."""

        def __init__(self, tracked: Callable[[DataFrame, int], None]) -> None:
            self.tracked = tracked
            self.done = 0

        def __call__(self, frame: DataFrame, batch_id: int) -> None:
            self.tracked(frame, batch_id)
            self.done += 1
            pointer = store.read_pointer()
            if self.done == 1 and pointer is not None:
                store.open_report(pointer.id, "lost")

    src = tracked_query.stream.source()
    tracked = src.tracked(lambda batch: rows.extend(numbers(batch.df)), on_exhausted="drop", **FAST)
    started = src.read_stream(tracked_query.spark).writeStream.foreachBatch(Losing(tracked))
    running = (
        started.option("checkpointLocation", str(tracked_query.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert running.awaitTermination(120)
    assert sorted(rows) == sorted(2 * list(range(10)))
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_a_report_that_another_process_has_opened_since_fails_the_batch(
    tracked_query: TrackedQuery, store: ZookeeperStateStore
) -> None:
    """Neither a late report of a zombie nor a batch whose plan was taken over can ack."""
    tracked_query.stream.put(10)
    rows: list[int] = []

    def process(batch: TrackedBatch) -> None:
        rows.extend(numbers(batch.df))
        pointer = store.read_pointer()
        assert pointer is not None
        store.finish_report(store.open_report(pointer.id, "zombie"), PlanReport())
        store.open_report(pointer.id, "another")

    with pytest.raises(Exception, match="report"):
        tracked_query.run(process)
    assert tracked_query.stream.checkpoints() == {}
    rows.clear()
    tracked_query.run_quietly(rows)
    assert sorted(rows) == list(range(10))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda frame: frame.drop("messageId"), "messageId"),
        (lambda frame: frame.select("messageId", "data"), "streamName, shardId"),
        (lambda frame: frame.withColumnRenamed("shardId", "shard"), "shardId"),
    ],
)
def test_a_frame_that_has_lost_columns_is_refused_at_once(
    tracked_query: TrackedQuery, change: Callable[[DataFrame], DataFrame], named: str
) -> None:
    tracked_query.stream.put(5)
    src = tracked_query.stream.source()
    ran: list[object] = []
    tracked = src.tracked(ran.append, on_exhausted="drop")
    writer = change(src.read_stream(tracked_query.spark)).writeStream.foreachBatch(tracked)
    running = (
        writer.option("checkpointLocation", str(tracked_query.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match=f"no column {named}"):
        running.awaitTermination(120)
    assert ran == []


def test_a_batch_that_is_replayed_past_the_retention_is_not_refused_for_ever(
    tracked_query: TrackedQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first records have expired since its tasks read them, and `failOnDataLoss` is false. What
    is left comes with the next plan.
    """
    stream = tracked_query.stream
    stream.put(10)
    stream.clock.advance(20 * 3600)
    stream.put(10)

    def fail(batch: TrackedBatch) -> None:
        assert batch.df.count() == 20
        raise ConnectionError("down")

    with pytest.raises(Exception, match="down"):
        tracked_query.run(fail)
    stream.clock.advance(5 * 3600)
    batches: list[list[int]] = []
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        tracked_query.run(
            lambda batch: batches.append(sorted(numbers(batch.df))),
            source={"fail_on_data_loss": False},
        )
    assert batches == [list(range(10, 20)), list(range(10, 20))]
    assert "nothing of this batch is acked, and the next plan reads what is left" in caplog.text
    assert stream.checkpoints() == stream.tips()


def test_rows_that_were_filtered_before_the_function_fail_the_batch(
    tracked_query: TrackedQuery,
) -> None:
    """Otherwise they would be acked unseen. Columns may be added."""
    tracked_query.stream.put(20)
    src = tracked_query.stream.source()

    def start(frame: DataFrame, name: str, rows: list[int]) -> Any:
        def process(batch: TrackedBatch) -> None:
            rows.extend(row.n for row in batch.df.collect())

        tracked = src.tracked(process, on_exhausted="drop")
        writer = frame.writeStream.foreachBatch(tracked).option(
            "checkpointLocation", str(tracked_query.checkpoint) + name
        )
        return writer.trigger(availableNow=True).start()

    frame = src.read_stream(tracked_query.spark).withColumn("n", number())
    with pytest.raises(
        Exception, match=r"frame holds .* of shard .* published .*filter and deduplicate inside"
    ):
        start(frame.where("n > 5"), "filtered", []).awaitTermination(120)
    assert tracked_query.stream.checkpoints() == {}
    rows: list[int] = []
    assert start(frame, "whole", rows).awaitTermination(120)
    assert sorted(rows) == list(range(20))


def test_a_function_that_takes_a_part_acks_only_the_records_that_were_read(
    tracked_query: TrackedQuery,
) -> None:
    """Records that were not read come with a later batch."""
    tracked_query.stream.put(80)
    seen: list[int] = []

    def process(batch: TrackedBatch) -> None:
        if not seen:
            seen.extend(numbers(batch.df.limit(1)))
        else:
            seen.extend(numbers(batch.df))

    tracked_query.run(process, source={"max_tasks": 4})
    by_shard = {shard: len(sequences) for shard, sequences in tracked_query.stream.records.items()}
    assert len(seen) == 1 + 80 - max(
        count for count in by_shard.values() if 1 + 80 - count == len(seen)
    )
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_a_function_that_reads_nothing_acks_nothing(tracked_query: TrackedQuery) -> None:
    tracked_query.stream.put(10)
    seen: list[int] = []
    batches: list[int] = []

    def process(batch: TrackedBatch) -> None:
        batches.append(batch.id)
        if len(batches) > 1:
            seen.extend(numbers(batch.df))

    tracked_query.run(process)
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize("was_tracked", [True, False])
def test_a_batch_of_a_closed_plan_is_not_reported(
    tracked_query: TrackedQuery,
    store: ZookeeperStateStore,
    caplog: pytest.LogCaptureFixture,
    *,
    was_tracked: bool,
) -> None:
    """The shard states bring its records again, so its failures are only logged. Also where it is
    the application's first batch, so that nothing in ZooKeeper says yet that it is tracked.
    """
    tracked_query.stream.put(10)
    rows: list[list[int]] = []

    def fail_once(batch: TrackedBatch) -> None:
        rows.append(numbers(batch.df))
        raise KeyError("stopped here")

    with pytest.raises(Exception, match="stopped here"):
        tracked_query.run(fail_once)
    pointer = store.read_pointer()
    assert pointer is not None
    store.acquire(this_process(0), timeout_s=30)
    store.close_plan(pointer.id)
    if not was_tracked:
        store.clear_policy()
    store.release()

    def process(batch: TrackedBatch) -> None:
        rows.append(numbers(batch.df))
        if len(rows) == 2:
            batch.fail(batch.df.where(number() == 3), "bad", retry=False)

    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        tracked_query.run(process)
    assert "1 of them failed" in caplog.text
    assert tracked_query.letters == []
    assert sorted(rows[2]) == list(range(10))


def test_a_batch_that_was_reported_before_its_plan_was_closed_is_not_run_again(
    tracked_query: TrackedQuery, store: ZookeeperStateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark has not committed it, so it replays the batch. The report holds: a record that failed
    in the replay alone would be acked, and missing from a sink that overwrites by batch.
    """
    tracked_query.stream.put(10)
    sink: dict[int, list[int]] = {}
    src = tracked_query.stream.source()

    def process(batch: TrackedBatch) -> None:
        is_replay = batch.id in sink
        good = batch.fail_where(batch.df, number() == 3, "in the replay") if is_replay else batch.df
        sink[batch.id] = numbers(good)

    def start(*, commits: bool) -> Any:
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
    pointer = store.read_pointer()
    assert pointer is not None
    store.acquire(this_process(0), timeout_s=30)
    store.close_plan(pointer.id)
    store.release()
    with caplog.at_level(logging.WARNING, logger="kinesis_spout"):
        assert start(commits=True).awaitTermination(120)
    assert "the function is not called again" in caplog.text
    assert {batch: sorted(rows) for batch, rows in sink.items()} == {0: list(range(10))}
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_the_report_of_another_batch_does_not_hold_for_a_replay(
    tracked_query: TrackedQuery, store: ZookeeperStateStore
) -> None:
    """A batch whose plan was closed without a report runs again, whatever was reported before."""
    tracked_query.stream.put(10)
    tracked_query.run_quietly([])
    tracked_query.stream.put(10)
    rows: list[list[int]] = []

    def fail_once(batch: TrackedBatch) -> None:
        rows.append(sorted(numbers(batch.df)))
        if len(rows) == 1:
            raise KeyError("stopped here")

    with pytest.raises(Exception, match="stopped here"):
        tracked_query.run(fail_once)
    reported, unreported = store.known_plans()
    assert store.read_report(reported) is not None
    assert store.read_report(unreported) is None
    store.acquire(this_process(0), timeout_s=30)
    store.close_plan(unreported)
    store.release()
    tracked_query.run(fail_once)
    assert rows == 3 * [list(range(10, 20))]


def test_two_queries_track_one_stream_under_two_names(
    tracked_query: TrackedQuery, tmp_path: Path
) -> None:
    tracked_query.stream.put(20)
    rows: dict[str, list[int]] = {"one": [], "two": []}
    queries = []
    for name, seen in rows.items():
        src = tracked_query.stream.source(application=name)

        def process(batch: TrackedBatch, seen: list[int] = seen, name: str = name) -> None:
            assert current_batch() is batch
            bad = number() == (1 if name == "one" else 2)
            seen.extend(numbers(batch.fail_where(batch.df, bad, "not mine", retry=False)))

        tracked = src.tracked(process, on_exhausted="drop", **FAST)
        writer = src.read_stream(tracked_query.spark).writeStream.foreachBatch(tracked)
        queries.append(
            writer.option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
    assert all(one.awaitTermination(120) for one in queries)
    assert sorted(rows["one"]) == [n for n in range(20) if n != 1]
    assert sorted(rows["two"]) == [n for n in range(20) if n != 2]
    assert tracked_query.stream.states("one").keys() == tracked_query.stream.states("two").keys()
