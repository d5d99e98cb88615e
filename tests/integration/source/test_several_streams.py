"""One query reads several streams: each with its own plans and states, none lost where one is
added, left or in trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spark_job.data_source import KinesisStreamReader
from tests.support.kinesis.services import create_stream
from tests.support.simulated.micro_batch_engine import CRASHES, Crash, MicroBatchEngine
from tests.support.spark.source import APPLICATION, READ_MODES, STREAM, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark_job.settings import QuerySettings

CLICKS = "clicks"
VIEWS = "views"


class SeveralEngine(MicroBatchEngine):
    """Spark's loop over the reader of a query of one or of several streams."""

    query: QuerySettings

    def start(self) -> None:
        self.reader = KinesisStreamReader(self.query)
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()


@pytest.fixture
def others(stream: StreamUnderTest) -> None:
    """Two more streams on the same service, each with the shard ids of the first."""
    for name in (CLICKS, VIEWS):
        create_stream(stream.client, name, shards=2)


def put(stream: StreamUnderTest, name: str, count: int, prefix: str = "x") -> set[str]:
    """Puts records on a stream; returns `stream/shard:sequence` of each."""
    entries = [
        {"Data": f"{name} {prefix}{n}".encode(), "PartitionKey": f"{prefix}{n}"}
        for n in range(count)
    ]
    answers = stream.client.put_records(StreamName=name, Records=entries)["Records"]
    return {f"{name}/{one['ShardId']}:{one['SequenceNumber']}" for one in answers}


def query_of(stream: StreamUnderTest, *names: str, **options: Any) -> QuerySettings:
    return stream.source(stream=",".join(names), **options).query()


@pytest.fixture
def engine_of(stream: StreamUnderTest, others: None) -> Iterator[Callable[..., SeveralEngine]]:
    made: list[SeveralEngine] = []

    def of(*names: str, after: SeveralEngine | None = None, **options: Any) -> SeveralEngine:
        query = query_of(stream, *names, **options)
        engine = SeveralEngine(query.streams[0])
        engine.query = query
        if after is not None:
            after.stop()
            engine.offsets, engine.committed = after.offsets, after.committed
            engine.sink = after.sink
        made.append(engine)
        return engine

    yield of
    for engine in made:
        engine.stop()


def got(engine: SeveralEngine) -> list[str]:
    """What the sink holds."""
    return [
        f"{row['streamName']}/{row['shardId']}:{row['sequenceNumber']}"
        for rows in engine.sink.values()
        for row in rows
    ]


@pytest.mark.parametrize("mode", READ_MODES)
def test_one_query_reads_two_streams_once_wherever_its_driver_dies(
    mode: str, stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    """The same shard ids on both; message ids name the stream. One is split meanwhile."""
    engine = engine_of(STREAM, CLICKS, max_records_per_trigger=15, **READ_MODES[mode])
    wanted: set[str] = set()
    for crash_at in CRASHES:
        wanted |= put(stream, STREAM, 20, crash_at) | put(stream, CLICKS, 20, crash_at)
        engine.run_batch()
        with pytest.raises(Crash):
            engine.run_batch(crash_at)
    stream.split()
    wanted |= put(stream, STREAM, 40, "after") | put(stream, CLICKS, 20, "after")
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)
    rows = [row for batch in engine.sink.values() for row in batch]
    assert {row["messageId"] for row in rows} == {
        f"{row['streamName']}/{row['shardId']}:{row['sequenceNumber']}:1" for row in rows
    }
    assert engine.offsets[-1]["format"] == 2
    assert set(engine.offsets[-1]["plans"]) == {
        f"{APPLICATION}/{STREAM}",
        f"{APPLICATION}/{CLICKS}",
    }
