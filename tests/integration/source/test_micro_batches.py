"""The source in Spark's micro-batch loop, without Spark itself: over HTTP, threads and a real
ZooKeeper. `tests/simulation` plays the same loop in memory, with all that can happen to it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
from state.shard_state import Lifecycle
from tests.support.kinesis.services import fields_of
from tests.support.simulated.micro_batch_engine import CRASHES, Crash, MicroBatchEngine
from tests.support.simulated.simulated_job import shard
from tests.support.spark.source import READ_MODES, STREAM, StreamUnderTest, ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.kinesis.services import ServedFake

MIB = 1024 * 1024
HOUR_S = 3_600.0


@pytest.fixture(params=READ_MODES)
def stream(request: pytest.FixtureRequest, stream: StreamUnderTest) -> StreamUnderTest:
    """Read in both modes."""
    stream.read_mode = READ_MODES[request.param]
    return stream


@pytest.fixture
def engine_of(stream: StreamUnderTest) -> Iterator[Callable[..., MicroBatchEngine]]:
    """Engines with these options, which stop at the end."""
    made: list[MicroBatchEngine] = []

    def of(**options: Any) -> MicroBatchEngine:
        made.append(MicroBatchEngine(stream.settings(**options)))
        return made[-1]

    yield of
    for engine in made:
        engine.stop()


def all_ids(engine: MicroBatchEngine) -> list[str]:
    return [one for _, rows in sorted(engine.sink.items()) for one in ids_of(rows)]


def test_a_sink_has_every_record_once_over_crashes_and_reshards(
    stream: StreamUnderTest, engine_of: Callable[..., MicroBatchEngine]
) -> None:
    """The driver dies at each step of a batch. Shards are split and merged under it, and while it
    is down. Children come after their parents' ends.
    """
    engine = engine_of(max_records_per_shard=20)
    for crash_at in CRASHES:
        stream.put(100)
        engine.run_batch()
        with pytest.raises(Crash):
            engine.run_batch(crash_at)
    parent = stream.split()
    stream.put(100)
    engine.run_batch()
    engine.stop()
    merged = stream.merge()
    stream.put(100)
    engine.run_until_idle()
    found, states = all_ids(engine), stream.states()
    assert sorted(found) == sorted(stream.ids())
    order = [one.partition(":")[0] for one in found]
    for child, state in states.items():
        for up in {*state.parents} & {*order}:
            assert len(order) - order[::-1].index(up) <= order.index(child)
    closed = {parent, *merged}
    assert {one for one, state in states.items() if state.lifecycle is Lifecycle.FINISHED} == closed
    assert {states[one].checkpoint_text for one in closed} == {"SHARD_END"}
    checkpoints, tips = stream.checkpoints(), stream.tips()
    assert all(checkpoints[one] == tips[one] for one in tips.keys() - closed)


# starts -------------------------------------------------------------------------------------------
def test_each_shard_starts_where_the_application_says_and_its_children_at_their_beginning(
    stream: StreamUnderTest, engine_of: Callable[..., MicroBatchEngine]
) -> None:
    """At its oldest record, at a record, behind one, and at a time. A shard is split before the
    start and another one after it, while the job is down and time passes.
    """
    stream.put(80)
    stream.clock.advance(HOUR_S)
    since = datetime.fromtimestamp(stream.clock.now_ms() / 1000, UTC).isoformat()
    before = {one: len(sequences) for one, sequences in stream.records.items()}
    stream.put(80)
    oldest, at, behind, timed = (stream.records[shard(number)] for number in range(4))
    starts = {
        "default": "TRIM_HORIZON",
        shard(1): f"AT:{at[3]}",
        shard(2): f"AFTER:{behind[3]}",
        shard(3): since,
    }
    skipped = {
        *(f"{shard(1)}:{one}" for one in at[:3]),
        *(f"{shard(2)}:{one}" for one in behind[:4]),
        *(f"{shard(3)}:{one}" for one in timed[: before[shard(3)]]),
    }
    assert oldest
    assert stream.split(index=3) == shard(3)
    stream.put(40)
    stream.clock.advance(60)
    engine = engine_of(starting_position=starts)
    engine.run_until_idle()
    engine.stop()
    stream.split()
    stream.put(40)
    stream.clock.advance(HOUR_S)
    engine.run_until_idle()
    assert sorted(all_ids(engine)) == sorted(stream.ids() - skipped)


@pytest.mark.parametrize("wire_format", ["json", "cbor"])
def test_odd_records_come_through_as_they_are(
    stream: StreamUnderTest, engine_of: Callable[..., MicroBatchEngine], wire_format: str
) -> None:
    """Data of any bytes, none, or a mebibyte of them; keys of any script."""
    everything = bytes(range(256))
    data = [everything, everything[::-1] * 7, b"", b"\x00", b"\xff\xfe\xfd", b'"\\\n{}']
    keys = ["ключ", "キー", 'a b\t"c"\\', "\u00e9\u0301", "\U0001f511", "k" * 256, "null", "\u2028"]
    records = [("a", one) for one in data] + [(key, b"x") for key in keys]
    records.append(("a", bytes(n % 251 for n in range(MIB - 1))))  # the key counts with the data
    for key, one in records:
        stream.put_record(key, one)
    engine = engine_of(wire_format=wire_format)
    engine.run_until_idle()
    found = [(row["partitionKey"], row["data"]) for row in engine.delivered]
    assert sorted(found) == sorted(records)


# the service's limits -----------------------------------------------------------------------------


@pytest.fixture
def pushed_engine(fake_kinesis: ServedFake, zookeeper_chroot: str) -> Iterator[MicroBatchEngine]:
    """Of a stream of two shards."""
    fake_kinesis.model.create(STREAM, shards=2)
    given: dict[str, Any] = {
        "stream": STREAM,
        "application": "orders-etl",
        "zookeeper": zookeeper_chroot,
        **fields_of(fake_kinesis.endpoint_url),
        "starting_position": "TRIM_HORIZON",
        "probe_interval": "200ms",
        "idle_wait": "500ms",
    }
    pushed_engine = MicroBatchEngine(KinesisSource(**given, **READ_MODES["efo"]).settings())
    yield pushed_engine
    pushed_engine.stop()
    ProcessServices.forget_all()
