"""One query reads several streams: each with its own plans and states, none lost where one is
added, left or in trouble.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import ConfigError, KinesisError, StreamNotFoundError
from kinesis_spout.testing.faults.plan import throttle
from kinesis_spout.testing.settings import FakeKinesisSettings
from spark_job.data_source import KinesisStreamReader, SeveralStreamsReader
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
        one = self.query.is_of_one
        reader: Any = (
            KinesisStreamReader(self.query.streams[0]) if one else SeveralStreamsReader(self.query)
        )
        self.reader = reader
        if self.available_now:
            reader.prepareForTriggerAvailableNow()


@pytest.fixture
def others(stream: StreamUnderTest) -> dict[str, list[str]]:
    """Two more streams on the same service, each with the shard ids of the first."""
    for name in (CLICKS, VIEWS):
        create_stream(stream.client, name, shards=2)
    return {}


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
def engine_of(
    stream: StreamUnderTest, others: dict[str, list[str]]
) -> Iterator[Callable[..., SeveralEngine]]:
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


def without_ids(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without their message ids, which name the stream in a query of several only."""
    return [{**row, "messageId": None} for row in rows]


@pytest.mark.parametrize("mode", READ_MODES)
def test_one_query_reads_two_streams_once(
    mode: str, stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    """The same shard ids on both; message ids name the stream."""
    wanted = put(stream, STREAM, 40) | put(stream, CLICKS, 40)
    engine = engine_of(STREAM, CLICKS, **READ_MODES[mode])
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


def test_a_query_of_one_stream_goes_on_with_two_and_with_one_again(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    """Also a third one takes part for a while. Each record comes once."""
    wanted = put(stream, STREAM, 20)
    engine = engine_of(STREAM)
    engine.run_until_idle()
    assert engine.offsets[-1]["format"] == 1
    wanted |= put(stream, CLICKS, 20) | put(stream, STREAM, 20, "b")
    engine = engine_of(STREAM, CLICKS, after=engine)
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


@pytest.mark.parametrize("mode", READ_MODES)
@pytest.mark.parametrize("crash_at", CRASHES)
def test_a_driver_that_dies_at_any_step_loses_and_doubles_nothing(
    mode: str, stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine], crash_at: str
) -> None:
    wanted = put(stream, STREAM, 20) | put(stream, CLICKS, 20)
    engine = engine_of(STREAM, CLICKS, max_records_per_trigger=15, **READ_MODES[mode])
    engine.run_batch()
    with pytest.raises(Crash):
        engine.run_batch(crash_at)
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_a_driver_that_dies_between_two_settles_settles_the_other_one_later(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    wanted = put(stream, STREAM, 20) | put(stream, CLICKS, 20)
    engine = engine_of(STREAM, CLICKS)
    engine.run_batch()
    assert engine.reader is not None
    joint: Any = engine.reader.coordinator
    joint._streams[0].coordinator.settle(  # one half of a call of Spark's
        engine.offsets[-1]["plans"][f"{APPLICATION}/{STREAM}"]
    )
    engine.stop()
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_a_repeated_batch_without_one_of_its_streams_is_refused_by_name(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    """With the stream it ends as it began, and then the stream may go."""
    wanted = put(stream, STREAM, 20) | put(stream, CLICKS, 20)
    engine = engine_of(STREAM, CLICKS)
    with pytest.raises(Crash):
        engine.run_batch("read")
    for names in ((STREAM,), (STREAM, VIEWS)):
        engine = engine_of(*names, after=engine)
        with pytest.raises(ConfigError, match=f"records of stream {CLICKS} .*leave the stream out"):
            engine.run_batch()
    engine = engine_of(STREAM, CLICKS, after=engine)
    engine.run_batch()
    engine = engine_of(STREAM, after=engine)
    wanted |= put(stream, STREAM, 5, "b")
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_a_batch_repeated_after_a_stream_was_added_is_the_same(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    wanted = put(stream, STREAM, 20)
    engine = engine_of(STREAM)
    with pytest.raises(Crash):
        engine.run_batch("sunk")
    wanted |= put(stream, CLICKS, 20)
    before = without_ids(engine.sink[0])
    engine = engine_of(STREAM, CLICKS, after=engine)
    engine.run_batch()
    assert without_ids(engine.sink[0]) == before
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_an_added_stream_begins_at_its_own_start(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    put(stream, CLICKS, 20)
    wanted = put(stream, STREAM, 20)
    engine = engine_of(STREAM)
    engine.run_until_idle()
    stream.clock.advance(60)
    query = KinesisSource.several(
        [stream.source(), stream.source(stream=CLICKS, starting_position="LATEST")]
    ).query()
    engine = engine_of(STREAM, CLICKS, after=engine)
    engine.query = query
    engine.run_until_idle()
    stream.clock.advance(60)
    wanted |= put(stream, CLICKS, 5, "new")
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_each_stream_has_its_limit_and_all_have_one(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    """None starves where the limit is lower than the number of streams."""
    wanted = set().union(*(put(stream, name, 12) for name in (STREAM, CLICKS, VIEWS)))
    engine = engine_of(
        STREAM, CLICKS, VIEWS, max_records_per_trigger=4, max_records_per_trigger_total=9
    )
    engine.run_batch()
    (rows,) = engine.sink.values()
    counts = {name: [row["streamName"] for row in rows].count(name) for name in (STREAM, CLICKS)}
    assert len(rows) <= 9
    assert all(0 < count <= 4 for count in counts.values())
    engine = engine_of(STREAM, CLICKS, VIEWS, after=engine, max_records_per_trigger_total=2)
    engine.run_batch()
    engine.run_batch()
    engine.run_batch()
    assert all(len(engine.sink[batch]) <= 2 for batch in (1, 2, 3))
    later = {row["streamName"] for batch in (1, 2, 3) for row in engine.sink[batch]}
    assert later == {STREAM, CLICKS, VIEWS}
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_a_stream_is_resharded_beside_another_one(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    wanted = put(stream, STREAM, 20) | put(stream, CLICKS, 20)
    engine = engine_of(STREAM, CLICKS)
    engine.run_until_idle()
    stream.split()
    wanted |= put(stream, STREAM, 40, "after") | put(stream, CLICKS, 20, "after")
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_available_now_ends_after_all_streams(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    wanted = put(stream, STREAM, 20) | put(stream, CLICKS, 200)
    engine = engine_of(STREAM, CLICKS, max_records_per_trigger=50)
    engine.available_now = True
    engine.run_until_idle()
    assert sorted(got(engine)) == sorted(wanted)


def test_a_missing_stream_is_an_error_with_its_name(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    engine = engine_of(STREAM, "nowhere")
    with pytest.raises(StreamNotFoundError, match="nowhere"):
        engine.run_batch()


def test_a_state_that_another_query_owns_is_an_error_with_the_streams_name(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    other = engine_of(CLICKS)
    put(stream, CLICKS, 1)
    other.run_batch()
    engine = engine_of(STREAM, CLICKS, owner_wait="100ms")
    with pytest.raises(Exception, match=CLICKS):  # the store's error, or one that names the stream
        engine.run_batch()


def test_a_checkpoint_of_a_stream_that_is_not_read_any_more_is_refused(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    """Its offset does not name the stream, and none of the query has the plan."""
    put(stream, STREAM, 5)
    engine = engine_of(STREAM)
    engine.run_until_idle()
    engine = engine_of(CLICKS, VIEWS, after=engine)
    with pytest.raises(KinesisError, match="none of the streams clicks, views"):
        engine.run_batch()


def test_a_stream_that_is_throttled_does_not_stop_the_others(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine], caplog: Any
) -> None:
    """It is named, left out for a while, and read again after that."""
    from kinesis_spout.errors import ThrottledError  # noqa: PLC0415  # of this test

    put(stream, CLICKS, 5)
    engine = engine_of(STREAM, CLICKS)
    engine.run_until_idle()
    assert engine.reader is not None
    joint: Any = engine.reader.coordinator
    clicks = next(one for one in joint._streams if one.settings.label == CLICKS)

    def refuse(_: float) -> None:
        raise ThrottledError("too many calls")

    look, clicks.coordinator.look = clicks.coordinator.look, refuse
    wanted = put(stream, STREAM, 20, "b")
    assert engine.run_batch()
    assert wanted <= set(got(engine))
    assert "stream clicks is left out" in caplog.text
    assert engine.reader.reportLatestOffset()["streams"][1]["trouble"]  # type: ignore[index]
    clicks.coordinator.look = look
    clicks.rests_until_s = 0.0
    wanted |= put(stream, CLICKS, 20, "b")
    engine.run_until_idle()
    assert wanted <= set(got(engine))
    assert len(got(engine)) == len(set(got(engine)))


def test_a_plan_that_cannot_be_settled_yet_is_not_open_in_the_next_batch(
    stream: StreamUnderTest, engine_of: Callable[..., SeveralEngine]
) -> None:
    """A tracked batch would take it for its own, and void the report that it has."""
    from kinesis_spout.errors import ThrottledError  # noqa: PLC0415  # of this test

    wanted = put(stream, STREAM, 20) | put(stream, CLICKS, 20)
    engine = engine_of(STREAM, CLICKS)
    engine.run_batch()
    assert engine.reader is not None
    joint: Any = engine.reader.coordinator
    clicks = next(one for one in joint._streams if one.settings.label == CLICKS)
    plan_id = engine.offsets[-1]["plans"][clicks.name]

    def refuse(_: str) -> None:
        raise ThrottledError("too many calls")

    settle, clicks.coordinator.settle = clicks.coordinator.settle, refuse
    assert clicks.coordinator.is_open(plan_id)
    wanted |= put(stream, STREAM, 20, "b")
    assert engine.run_batch()
    assert engine.offsets[-1]["plans"][clicks.name] == plan_id
    assert not clicks.coordinator.is_open(plan_id)
    clicks.coordinator.settle, clicks.rests_until_s = settle, 0.0
    wanted |= put(stream, CLICKS, 20, "b")
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


def test_settings_of_streams_that_are_the_same_are_refused(stream: StreamUnderTest) -> None:
    with pytest.raises(ConfigError, match="two streams orders"):
        KinesisSource.several([stream.source(), stream.source()])
    replaced = replace(stream.source(), stream="a,b")
    assert [one.label for one in replaced.query().streams] == ["a", "b"]
