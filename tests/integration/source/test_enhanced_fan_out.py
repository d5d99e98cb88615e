"""The source reads by subscription over HTTP: real sockets, and threads of their own."""

from __future__ import annotations

import math
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.reading.shard_getter import FetchPostponedError
from kinesis_spout.testing import drop, error, slow
from kinesis_spout.testing.stream.hash_keys import hash_key
from spark_job.executor.subscriptions import TaskSubscriptions
from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
from state.plan import ShardSlice
from state.position import TRIM_HORIZON
from tests.support.kinesis.fake_consumers import register
from tests.support.kinesis.scripted_feeds import Polling
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY, serve
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import READ_MODES, ids_of
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.reading.push_or_poll_getter import PushOrPollGetter
    from kinesis_spout.testing import FakeKinesis, Fault
    from spark_job.settings import SourceSettings
    from tests.support.kinesis.services import ServedFake

STREAM = "orders"
PATIENCE_S = 30.0


@pytest.fixture
def engine(fake_kinesis: ServedFake, zookeeper_chroot: str) -> Iterator[MicroBatchEngine]:
    """Of a stream of two shards."""
    fake_kinesis.model.create(STREAM, shards=2)
    engine = MicroBatchEngine(settings_of(fake_kinesis, zookeeper_chroot))
    yield engine
    engine.stop()
    ProcessServices.forget_all()


def settings_of(fake: ServedFake, zookeeper: str) -> SourceSettings:
    given: dict[str, Any] = {
        "stream": STREAM,
        "application": "orders-etl",
        "zookeeper": zookeeper,
        "endpoint_url": fake.endpoint_url,
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "starting_position": "TRIM_HORIZON",
        "probe_interval": "200ms",
        "idle_wait": "500ms",
    }
    return KinesisSource(**given, **READ_MODES["efo"]).settings()


def put(fake: ServedFake, count: int, prefix: str) -> set[str]:
    return {fake.model.put(STREAM, f"{prefix}{n}", b"x") for n in range(count)}


def delivered(engine: MicroBatchEngine) -> list[str]:
    return [one for rows in engine.sink.values() for one in ids_of(rows)]


def assert_no_thread_stays() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("kinesis-subscription"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def report_of(engine: MicroBatchEngine) -> dict[str, Any]:
    assert engine.reader is not None
    report = engine.reader.reportLatestOffset()
    assert report is not None
    return report


@pytest.mark.parametrize(
    ("fault", "fallback"),
    [
        (slow(2.0), "silent"),
        (error("ResourceInUseException"), "in_use"),
        (drop(), "refused"),
    ],
    ids=["silent", "in use", "dropped"],
)
def test_a_stream_that_cannot_be_subscribed_to_is_polled(
    fake_kinesis: ServedFake, engine: MicroBatchEngine, fault: Fault, fallback: str
) -> None:
    fake_kinesis.model.faults.add(fault, operation="SubscribeToShard", times=None)
    wanted = put(fake_kinesis, 20, "a")
    engine.run_until_idle()
    assert sorted(delivered(engine)) == sorted(wanted)
    report = report_of(engine)
    assert (report["pushedRecords"], report["polledRecords"]) == (0, 20)
    # A refusal that takes longer than the task waits is silence.
    assert report["fallbacks"].keys() <= {fallback, "silent"}
    assert report["fallbacks"]
    assert_no_thread_stays()


MIB = 1024 * 1024
LARGE_BYTES = 2 * MIB
ROOM_BYTES = 4 * MIB


def test_large_events_of_many_shards_are_held_up_to_a_bound_and_the_awaited_shard_goes_on(
    zookeeper_chroot: str,
) -> None:
    """Six shards with 36 MiB, read one after the other. Those that nobody asks for fill the room
    meanwhile. Nothing is polled here, so a shard that would wait for room would never come.
    """
    shards = [f"shardId-{number:012d}" for number in range(6)]
    with serve() as fake:
        fake.model.create(STREAM, shards=len(shards))
        put_large(fake.model, shards, each=3)
        arn = register(fake.model)
        services = ProcessServices.connect(settings_of(fake, zookeeper_chroot))
        subscriptions = TaskSubscriptions(arn, services, max_event_bytes=ROOM_BYTES)
        getters = [getter_of(subscriptions, shard) for shard in shards]
        for getter in getters:
            with pytest.raises(FetchPostponedError):
                getter.fetch_unless_throttled(1_000)
        wait_until(lambda: subscriptions.held_bytes >= ROOM_BYTES)
        most_bytes = 0
        for getter in reversed(getters):
            left, looks = 3, 0
            while left:
                most_bytes = max(most_bytes, subscriptions.held_bytes)
                try:
                    left -= getter.fetch_unless_throttled(1_000).count
                except FetchPostponedError:
                    looks += 1
                    assert looks < 60, f"{getter.shard_id} waits for room"
                    getter.demand()
                    subscriptions.wait(0.5)
            getter.close()
        assert subscriptions.held_bytes == 0
        # Base64 makes an event a third larger than its records.
        assert most_bytes <= ROOM_BYTES + len(shards) * MIB + 2 * LARGE_BYTES * 1.4
    assert_no_thread_stays()


def put_large(model: FakeKinesis, shards: list[str], *, each: int) -> None:
    keys = (f"key {number}" for number in count())
    left = dict.fromkeys(shards, each)
    while left:
        key = next(keys)
        shard = next(
            one.shard_id
            for one in model.shards(STREAM)
            if one.hash_keys.start <= hash_key(key) <= one.hash_keys.end
        )
        if shard in left:
            model.put(STREAM, key, b"x" * LARGE_BYTES)
            left[shard] -= 1
            left = {one: more for one, more in left.items() if more}


def getter_of(subscriptions: TaskSubscriptions, shard_id: str) -> PushOrPollGetter:
    """A getter that never polls."""
    polling: Any = Polling(shard_id, ready_s=math.inf)
    return subscriptions.getter(
        ShardSlice(shard_id=shard_id, position=TRIM_HORIZON, max_records=1_000), polling
    )
