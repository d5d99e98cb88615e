"""One query reads several streams, over HTTP and a real ZooKeeper. `tests/simulation` plays such
queries in memory, with all that can happen to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_job.data_source import KinesisStreamReader
from tests.support.kinesis.services import create_stream
from tests.support.simulated.micro_batch_engine import CRASHES, Crash, MicroBatchEngine
from tests.support.spark.source import APPLICATION, READ_MODES, STREAM, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import QuerySettings

CLICKS = "clicks"


class SeveralEngine(MicroBatchEngine):
    """Spark's loop over the reader of a query of several streams."""

    query: QuerySettings

    def start(self) -> None:
        self.reader = KinesisStreamReader(self.query)


@pytest.fixture(params=READ_MODES)
def engine(request: pytest.FixtureRequest, stream: StreamUnderTest) -> Iterator[SeveralEngine]:
    """Of two streams on one service, which have the same shard ids."""
    create_stream(stream.client, CLICKS, shards=2)
    query = stream.source(
        stream=f"{STREAM},{CLICKS}", max_records_per_trigger=15, **READ_MODES[request.param]
    ).query()
    engine = SeveralEngine(query.streams[0])
    engine.query = query
    yield engine
    engine.stop()


def put(stream: StreamUnderTest, name: str, count: int, prefix: str = "x") -> set[str]:
    """Puts records on a stream; returns `stream/shard:sequence` of each."""
    entries = [
        {"Data": f"{name} {prefix}{n}".encode(), "PartitionKey": f"{prefix}{n}"}
        for n in range(count)
    ]
    answers = stream.client.put_records(StreamName=name, Records=entries)["Records"]
    return {f"{name}/{one['ShardId']}:{one['SequenceNumber']}" for one in answers}


def got(engine: SeveralEngine) -> list[str]:
    """What the sink holds."""
    return [
        f"{row['streamName']}/{row['shardId']}:{row['sequenceNumber']}"
        for rows in engine.sink.values()
        for row in rows
    ]


def test_one_query_reads_two_streams_once_wherever_its_driver_dies(
    stream: StreamUnderTest, engine: SeveralEngine
) -> None:
    """The same shard ids on both; message ids name the stream. One is split meanwhile."""
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
