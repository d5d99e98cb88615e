"""The limits of a batch hold, odd records come through whole, and reads stay within the service's
own limits.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing import FakeKinesisSettings, alter
from kinesis_spout.testing.stream.hash_keys import hash_key
from spark_job.process_services import ProcessServices
from tests.support.kinesis.services import create_stream, kinesis_client, serve
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import READ_MODES, STREAM, ShiftedClock, StreamUnderTest, ids_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.testing import FakeKinesis

MIB = 1024 * 1024


@pytest.fixture(params=READ_MODES)
def stream(request: pytest.FixtureRequest, stream: StreamUnderTest) -> StreamUnderTest:
    """Read in both modes."""
    stream.read_mode = READ_MODES[request.param]
    return stream


@contextmanager
def engine_of(stream: StreamUnderTest, **options: Any) -> Iterator[MicroBatchEngine]:
    engine = MicroBatchEngine(stream.settings(**options))
    try:
        yield engine
    finally:
        engine.stop()


def sizes(engine: MicroBatchEngine) -> list[int]:
    """Payload bytes of each batch."""
    return [sum(len(row["data"]) for row in rows) for rows in engine.sink.values()]


# limits of a batch --------------------------------------------------------------------------------
@pytest.mark.parametrize("limit", [1, 3, 7, 40])
def test_a_trigger_never_gives_more_records_than_asked_for_and_gives_them_all(
    limit: int, stream: StreamUnderTest
) -> None:
    """For limits below the number of shards and above the number of records."""
    stream.put(41)
    with engine_of(stream, max_records_per_trigger=limit) as engine:
        engine.run_until_idle()
        assert max(len(rows) for rows in engine.sink.values()) <= limit
        assert sorted(ids_of(engine.delivered)) == sorted(stream.ids())


def test_a_shard_never_gives_more_records_than_asked_for(stream: StreamUnderTest) -> None:
    stream.put(200)
    with engine_of(stream, max_records_per_shard=9) as engine:
        engine.run_until_idle()
        for rows in engine.sink.values():
            shards = [row["shardId"] for row in rows]
            assert max(map(shards.count, shards)) <= 9
        assert sorted(ids_of(engine.delivered)) == sorted(stream.ids())


@pytest.mark.parametrize("tasks", [1, 3, 64])
def test_a_batch_has_at_most_so_many_tasks(tasks: int, stream: StreamUnderTest) -> None:
    stream.put(100)
    with engine_of(stream, max_tasks=tasks) as engine:
        engine.start()
        assert engine.reader is not None
        start = engine.reader.initialOffset()
        end = engine.reader.latestOffset(start, engine.reader.getDefaultReadLimit())
        assert len(engine.reader.partitions(start, end)) == min(tasks, 4)


def test_a_task_gives_at_most_so_many_bytes_and_one_record_that_is_larger(
    stream: StreamUnderTest,
) -> None:
    stream.put(60)
    stream.client.put_record(StreamName=STREAM, PartitionKey="k", Data=b"x" * 5_000)
    with engine_of(stream, max_tasks=1, max_bytes_per_task=200) as engine:
        engine.run_until_idle()
        assert sorted(size for size in sizes(engine) if size > 200) == [5_000]
        assert len(engine.delivered) == 61


# odd records --------------------------------------------------------------------------------------
def put_and_read(stream: StreamUnderTest, *records: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    for key, data in records:
        stream.client.put_record(StreamName=STREAM, PartitionKey=key, Data=data)
    with engine_of(stream) as engine:
        engine.run_until_idle()
        assert engine.read(engine.reader.partitions(START, engine.offsets[0])) == engine.sink[0]  # type: ignore[union-attr]  # it runs
        return [(row["partitionKey"], row["data"]) for rows in engine.sink.values() for row in rows]


START = {"format": 1, "plan": ""}


def test_binary_data_comes_through_byte_for_byte(stream: StreamUnderTest) -> None:
    everything = bytes(range(256))
    records = [
        ("a", everything),
        ("b", everything[::-1] * 7),
        ("c", b"\x00"),
        ("d", b"\xff\xfe\xfd"),
        ("e", b'"\\\n{}'),
    ]
    assert sorted(put_and_read(stream, *records)) == sorted(records)


def test_empty_data_is_a_record_with_no_bytes_not_a_null(stream: StreamUnderTest) -> None:
    assert put_and_read(stream, ("a", b"")) == [("a", b"")]


def test_a_record_of_one_mebibyte_comes_through_beside_small_ones(stream: StreamUnderTest) -> None:
    """The key counts with the data."""
    large = bytes(n % 251 for n in range(MIB - 1))
    assert sorted(
        put_and_read(stream, ("a", b"small"), ("a", large), ("a", b"small too"))
    ) == sorted([("a", b"small"), ("a", large), ("a", b"small too")])


def test_partition_keys_of_any_script_come_through(stream: StreamUnderTest) -> None:
    keys = ["ключ", "キー", 'a b\t"c"\\', "\u00e9\u0301", "\U0001f511", "k" * 256, "null", "\u2028"]
    assert sorted(put_and_read(stream, *((key, b"x") for key in keys))) == sorted(
        (key, b"x") for key in keys
    )


def test_records_of_one_arrival_time_are_all_read_once_and_in_order(
    stream: StreamUnderTest,
) -> None:
    """PutRecords gives up to 500 records the same time; batches end in the middle of them."""
    stream.put(400)
    with engine_of(stream, max_records_per_shard=7) as engine:
        engine.run_until_idle()
        assert sorted(ids_of(engine.delivered)) == sorted(stream.ids())
        for shard, sequences in stream.records.items():
            assert [
                row["sequenceNumber"] for row in engine.delivered if row["shardId"] == shard
            ] == sequences


def test_a_start_at_a_time_that_many_records_share_gives_all_of_them(
    zookeeper_chroot: str,
) -> None:
    with served(zookeeper_chroot) as (stream, fake):
        stream.clock.advance(60)
        shared_ms = stream.clock.now_ms() - 1_000
        ids = [
            fake.put(STREAM, f"key {n}", b"x", arrival_ms=shared_ms - (n < 20)) for n in range(100)
        ]
        start = datetime.fromtimestamp(shared_ms / 1000, UTC).isoformat(timespec="milliseconds")
        with engine_of(stream, starting_position=start) as engine:
            engine.run_until_idle()
            assert sorted(ids_of(engine.delivered)) == sorted(ids[20:])


# the middle of a shard ----------------------------------------------------------------------------
def test_empty_pages_in_the_middle_of_a_shard_are_not_its_end(zookeeper_chroot: str) -> None:
    """Also when there are more of them than a batch may search, and when the shard was closed after
    them.
    """
    with served(zookeeper_chroot) as (stream, fake):
        stream.put(40)
        for shard in list(stream.records):
            fake.insert_empty_pages(STREAM, shard, 60)
        stream.put(40)
        stream.split()
        stream.put(40)
        with engine_of(
            stream,
            max_search_time="300ms",
            max_fetch_time="50ms",
            reads_per_second=20,
            idle_wait="2s",
        ) as engine:
            engine.run_until_idle()
            assert sorted(ids_of(engine.delivered)) == sorted(stream.ids())
            assert len(engine.sink) > 2


# the service's limits -----------------------------------------------------------------------------
@pytest.mark.parametrize("workers", ["one worker", "a new worker for each batch"])
def test_a_task_that_keeps_the_services_pace_is_never_throttled(
    workers: str, zookeeper_chroot: str
) -> None:
    """5 calls and 2 MB a second and shard, over all batches; the shards hold more than that. A
    worker that has not read a shard before learns from the plan when it may.
    """
    with served(zookeeper_chroot, limits=True) as (stream, fake):
        for number in range(12):
            for shard in fake.shards(STREAM):
                fake.put(
                    STREAM,
                    _key_of(shard.hash_keys.start, shard.hash_keys.end),
                    bytes(400_000) + bytes([number]),
                )
        answered = itertools.count()
        fake.faults.add(
            alter(lambda page: (next(answered), page)[1]), operation="GetRecords", times=None
        )
        pace: dict[str, Any] = {
            "reads_per_second": 5,
            "read_bytes_per_second": "2MiB",
            "max_records_per_shard": 3,
        }
        with engine_of(stream, probe_interval="60s", **pace) as engine:
            batches = 0
            while engine.run_batch():
                batches += 1
                if workers != "one worker":
                    ProcessServices.here(engine.settings).pacers.clear()
            assert batches >= 4
        assert len(engine.delivered) == 12 * len(fake.shards(STREAM))
        assert next(answered) == len(fake.faults.struck)  # the others got an error


def _key_of(low: int, high: int) -> str:
    return next(key for key in map(str, range(100_000)) if low <= hash_key(key) <= high)


@contextmanager
def served(zookeeper_chroot: str, **settings: Any) -> Iterator[tuple[StreamUnderTest, FakeKinesis]]:
    """A stream under test whose service the test can configure."""
    clock = ShiftedClock()
    with (
        serve(clock=clock, settings=FakeKinesisSettings(**settings)) as fake,
        kinesis_client(fake.endpoint_url) as client,
    ):
        create_stream(client, STREAM, shards=4)
        yield StreamUnderTest(client, fake.endpoint_url, zookeeper_chroot, clock), fake.model
        ProcessServices.forget_all()
