"""A plan gives every attempt at its batch the same rows in the same order."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.errors import DataLossError
from spark_job.data_source import KinesisStreamReader, TaskPartition
from state.errors import PlanClosedError
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import READ_MODES, StreamUnderTest, ids_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import SourceSettings
    from state.plan import ShardReadResult


@pytest.fixture(params=READ_MODES)
def stream(request: pytest.FixtureRequest, stream: StreamUnderTest) -> StreamUnderTest:
    """Read in both modes."""
    stream.read_mode = READ_MODES[request.param]
    return stream


TRIES = 5


@pytest.fixture
def engines() -> Iterator[list[MicroBatchEngine]]:
    """Engines to stop at the end."""
    made: list[MicroBatchEngine] = []
    yield made
    for engine in made:
        engine.stop()


@pytest.fixture
def engine(stream: StreamUnderTest, engines: list[MicroBatchEngine]) -> MicroBatchEngine:
    engines.append(MicroBatchEngine(stream.settings(max_tasks=2)))
    return engines[0]


def planned(engine: MicroBatchEngine) -> list[Any]:
    """The partitions of the next batch, logged but not read."""
    engine.start()
    assert engine.reader is not None
    start = engine.reader.initialOffset()
    engine.offsets.append(engine.reader.latestOffset(start, engine.reader.getDefaultReadLimit()))
    return list(engine.reader.partitions(start, engine.offsets[0]))


def test_a_plan_read_again_gives_the_same_rows_after_appends_and_resharding(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    """Between the two reads records are appended, a shard is split and two are merged."""
    stream.put(300)
    partitions = planned(engine)
    first = engine.read(partitions)
    stream.put(100)
    stream.split()
    stream.merge()
    stream.put(100)
    assert engine.read(partitions) == first
    assert len(first) == 300


def test_what_was_pushed_is_polled_again_as_it_was(
    stream: StreamUnderTest, engines: list[MicroBatchEngine]
) -> None:
    """A first read by subscription and a replay by GetRecords, in the same order. A machine that is
    slow may miss the second in which an event has to come, so the test has more than one try.
    """
    stream.put(300)
    for number in range(TRIES):
        name = f"reader-{number}"
        own = {"read_mode": "efo", "consumer_name": name, "application": name}
        engine = MicroBatchEngine(stream.settings(max_tasks=2, **own))
        engines.append(engine)
        partitions = planned(engine)
        first = engine.read(partitions)
        pushed = sum(end.pushed for end in ends_of(stream, name))
        assert engine.read(partitions) == first
        assert len(first) == 300
        assert pushed == sum(end.pushed for end in ends_of(stream, name))
        if pushed:
            return
    raise AssertionError("nothing was pushed")


def ends_of(stream: StreamUnderTest, application: str) -> list[ShardReadResult]:
    return [end for task in stream.logs(application).values() for end in task.shards]


def test_a_restarted_driver_plans_the_same_partitions_for_a_logged_batch(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    stream.put(100)
    first = engine.read(planned(engine))
    engine.stop()
    stream.put(50)
    engine.run_batch()
    assert engine.sink[0] == first


def test_two_concurrent_reads_of_a_task_with_different_limits_give_the_same_rows(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    stream.put(400)
    partition = planned(engine)[0]
    small = TaskPartition(
        partition.plan_id,
        partition.task,
        _limited(partition.plan, 7),
        partition.aws,
    )
    barrier = threading.Barrier(2)
    results: dict[str, list[dict[str, Any]]] = {}

    def read(name: str, one: TaskPartition) -> None:
        reader = KinesisStreamReader(engine.settings)
        barrier.wait(10)
        results[name] = [row for batch in reader.read(one) for row in batch.to_pylist()]

    threads = [
        threading.Thread(target=read, args=args)
        for args in (("small", small), ("large", partition))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results["small"] == results["large"]
    assert results["large"]


def _limited(plan: Any, most: int) -> Any:
    shards = tuple(msgspec.structs.replace(shard, max_records=most) for shard in plan.shards)
    return msgspec.structs.replace(plan, shards=shards)


def test_a_task_of_a_closed_plan_publishes_nothing(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    """The batch's sink read one task only; the other task starts after the plan was settled."""
    stream.put(200)
    first, zombie = planned(engine)
    rows = engine.read([first])
    engine.committed = 0
    engine.run_batch()
    with pytest.raises(PlanClosedError):
        engine.read([zombie])
    assert set(ids_of(rows)) | set(ids_of(engine.sink[1])) == stream.ids()


def test_a_batch_that_was_read_in_part_settles_only_what_was_read(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    stream.put(200)
    partitions = planned(engine)
    rows = engine.read(partitions[:1])
    engine.committed = 0
    engine.run_until_idle()
    assert len(ids_of(rows)) + len([row for batch in engine.sink.values() for row in batch]) == 200
    assert stream.checkpoints() == stream.tips()


def test_records_of_a_published_end_that_are_gone_stop_the_query(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    """With failOnDataLoss false the rest is read and the loss is reported."""
    stream.put(100)
    partitions = planned(engine)
    engine.read(partitions)
    stream.clock.advance(25 * 3600)
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        engine.read(partitions)
    engine.reader = KinesisStreamReader(_lenient(engine.settings))
    assert engine.read(partitions) == []


def _lenient(settings: SourceSettings) -> SourceSettings:
    return replace(settings, fail_on_data_loss=False)
