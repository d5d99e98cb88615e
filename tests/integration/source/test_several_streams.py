"""One query reads several streams: each with its own plans and states, none lost where one is
added, left or in trouble.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import KinesisError
from kinesis_spout.testing.faults.plan import throttle
from kinesis_spout.testing.settings import FakeKinesisSettings
from spark_job.data_source import KinesisStreamReader
from spark_job.kinesis_source import KinesisSource
from tests.support.kinesis.services import create_stream, kinesis_client, serve
from tests.support.simulated.micro_batch_engine import CRASHES, Crash, MicroBatchEngine
from tests.support.spark.source import APPLICATION, READ_MODES, STREAM, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark_job.settings import QuerySettings

CLICKS = "clicks"
ARN_HERE = f"arn:aws:kinesis:us-east-1:000000000000:stream/{STREAM}"
ARN_THERE = f"arn:aws:kinesis:eu-west-1:444455556666:stream/{STREAM}"
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


def test_a_query_of_one_stream_goes_on_with_others_and_with_one_again(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    """Each record comes once. A checkpoint of a stream that is not read any more is refused where
    its offset does not name the stream, and none of the query has the plan.
    """
    wanted = put(stream, STREAM, 20)
    engine = engine_of(STREAM)
    engine.run_until_idle()
    assert engine.offsets[-1]["format"] == 1
    refused = engine_of(CLICKS, VIEWS, after=engine)
    with pytest.raises(KinesisError, match="none of the streams clicks, views"):
        refused.run_batch()
    wanted |= put(stream, CLICKS, 20) | put(stream, STREAM, 20, "b")
    engine = engine_of(STREAM, CLICKS, after=refused)
    engine.run_until_idle()
    wanted |= put(stream, STREAM, 20, "c")
    away = put(stream, CLICKS, 20, "away")
    engine = engine_of(STREAM, after=engine)
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)
    wanted |= away | put(stream, VIEWS, 20)
    engine = engine_of(VIEWS, CLICKS, STREAM, after=engine)
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_streams_of_two_regions_and_one_of_them_throttled(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine], caplog: Any
) -> None:
    """Each has its endpoint, its region and its application; both have the same name. The reads of
    one are refused: the other one's batches go on, and it is read when its calls are answered.
    """
    elsewhere = FakeKinesisSettings(region="eu-west-1", account_id="444455556666")
    wanted = {f"{ARN_HERE}/{one.split('/')[1]}" for one in put(stream, STREAM, 20)}
    with (
        serve(clock=stream.clock, settings=elsewhere) as fake,
        kinesis_client(fake.endpoint_url) as client,
    ):
        create_stream(client, STREAM, shards=2)
        there = StreamUnderTest(client, fake.endpoint_url, stream.zookeeper, stream.clock)
        shared = {"max_fetch_time": "300ms", "max_search_time": "5s", "stream": None}
        engine = engine_of(STREAM, CLICKS)
        engine.query = KinesisSource.several(
            [
                stream.source(stream_arn=ARN_HERE, **shared),
                there.source(
                    stream_arn=ARN_THERE, region=None, application="orders-elsewhere", **shared
                ),
            ]
        ).query()
        fake.model.faults.add(throttle(), operation="GetRecords", times=None)
        away = {f"{ARN_THERE}/{one.split('/')[1]}" for one in put(there, STREAM, 20)}
        for turn in range(3):
            new = put(stream, STREAM, 3, f"b{turn}")
            wanted |= {f"{ARN_HERE}/{one.split('/')[1]}" for one in new}
            for _ in range(10):
                engine.run_batch()
                if wanted <= set(got(engine)):
                    break
            assert sorted(got(engine)) == sorted(wanted)
        assert f"stream {ARN_THERE} is behind, but gave no record" in caplog.text
        fake.model.faults.clear()
        engine.run_until_idle()
        stream.clock.advance(30)  # its rest
        engine.run_until_idle()
        assert sorted(got(engine)) == sorted(wanted | away)
        engine.stop()
