"""The source in Spark's micro-batch loop, without Spark itself: starts, restarts, crashes,
resharding, idleness, ownership.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import ConfigError, DataLossError, StreamNotFoundError
from state.errors import OwnedByAnotherError, StoreUnavailableError, StreamMismatchError
from state.shard_state import Lifecycle
from tests.support.kinesis.services import create_stream
from tests.support.simulated.micro_batch_engine import CRASHES, Crash, MicroBatchEngine
from tests.support.spark.source import READ_MODES, STREAM, StreamUnderTest, ids_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=READ_MODES)
def stream(request: pytest.FixtureRequest, stream: StreamUnderTest) -> StreamUnderTest:
    """Read in both modes."""
    stream.read_mode = READ_MODES[request.param]
    return stream


@pytest.fixture
def engines() -> Iterator[list[MicroBatchEngine]]:
    """Engines to stop at the end."""
    made: list[MicroBatchEngine] = []
    yield made
    for engine in made:
        engine.stop()


@pytest.fixture
def engine(stream: StreamUnderTest, engines: list[MicroBatchEngine]) -> MicroBatchEngine:
    engines.append(MicroBatchEngine(stream.settings(max_records_per_shard=20)))
    return engines[0]


def all_ids(engine: MicroBatchEngine) -> list[str]:
    return [one for _, rows in sorted(engine.sink.items()) for one in ids_of(rows)]


def test_every_record_is_read_once_and_each_checkpoint_is_at_its_shards_tip(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    stream.put(300)
    assert engine.run_until_idle() > 1
    assert sorted(all_ids(engine)) == sorted(stream.ids())
    assert stream.checkpoints() == stream.tips()


@pytest.mark.parametrize("crash_at", CRASHES)
def test_a_driver_that_dies_anywhere_loses_nothing_and_repeats_nothing_in_an_idempotent_sink(
    crash_at: str, stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    stream.put(300)
    engine.run_batch()
    with pytest.raises(Crash):
        engine.run_batch(crash_at)
    stream.put(100)
    engine.run_until_idle()
    assert sorted(all_ids(engine)) == sorted(stream.ids())
    assert stream.checkpoints() == stream.tips()


def test_a_new_checkpoint_location_goes_on_from_zookeeper_and_skips_nothing(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    """Spark committed the last batch, but it was not settled: it comes again, the settled ones do
    not.
    """
    stream.put(300)
    for _ in range(3):
        engine.run_batch()
    settled = {one for batch in (0, 1) for one in ids_of(engine.sink[batch])}
    last = set(ids_of(engine.sink[2]))
    engine.forget_checkpoint_location()
    before = len(engine.delivered)
    engine.run_until_idle()
    again = ids_of(engine.delivered[before:])
    assert set(again) == stream.ids() - settled
    assert last <= set(again)


def test_an_old_checkpoint_location_restored_never_skips(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    """Spark's logs are two batches old: settled records stay settled, the rest is read."""
    stream.put(300)
    engine.run_batch()
    old = (list(engine.offsets), engine.committed)
    engine.run_batch()
    engine.run_batch()
    engine.stop()
    engine.offsets, engine.committed = old
    engine.run_until_idle()
    assert set(ids_of(engine.delivered)) == stream.ids()
    assert stream.checkpoints() == stream.tips()


def test_a_lost_zookeeper_is_data_loss_and_then_the_batch_is_empty_and_its_records_come_again(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    """Where the user goes on: with what is still in the stream, from the oldest record on."""
    stream.put(100)
    with pytest.raises(Crash):
        engine.run_batch("logged")
    engine.settings = stream.settings(zookeeper=f"{stream.zookeeper}-lost")
    with pytest.raises(DataLossError, match="has no start"):
        engine.run_batch()
    engine.stop()
    engine.settings = stream.settings(zookeeper=f"{stream.zookeeper}-lost", fail_on_data_loss=False)
    engine.run_until_idle()
    assert sorted(all_ids(engine)) == sorted(stream.ids())
    assert engine.sink[0] == []


def test_children_are_read_after_their_parents_ends(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    stream.put(200)
    parent = stream.split()
    stream.put(200)
    merged = stream.merge()
    stream.put(200)
    engine.run_until_idle()
    assert sorted(all_ids(engine)) == sorted(stream.ids())
    order = [one.partition(":")[0] for one in all_ids(engine)]
    states = stream.states()
    for child, state in states.items():
        for up in state.parents:
            if child in order and up in order:
                assert len(order) - order[::-1].index(up) - 1 < order.index(child), (
                    f"{child} was read before the end of {up}"
                )
    assert {states[one].lifecycle for one in (parent, *merged)} == {Lifecycle.FINISHED}
    assert {states[one].checkpoint_text for one in (parent, *merged)} == {"SHARD_END"}


def test_a_reshard_while_the_job_is_down_is_followed(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    """Several generations while it is down; a closed parent that lags is drained first."""
    stream.put(200)
    engine.run_batch()
    engine.stop()
    for _ in range(2):
        stream.split()
        stream.put(100)
        stream.merge()
        stream.put(100)
    engine.run_until_idle()
    assert sorted(all_ids(engine)) == sorted(stream.ids())


def test_latest_starts_at_the_pin_and_children_of_later_splits_at_their_beginning(
    stream: StreamUnderTest, engines: list[MicroBatchEngine]
) -> None:
    stream.put(100)
    old = stream.ids()
    stream.clock.advance(60)
    engine = MicroBatchEngine(stream.settings(starting_position="LATEST", max_records_per_shard=20))
    engines.append(engine)
    assert engine.run_batch() is False
    stream.put(50)
    stream.split()
    stream.put(50)
    engine.run_until_idle()
    assert sorted(all_ids(engine)) == sorted(stream.ids() - old)


def test_available_now_ends_though_producers_go_on(
    stream: StreamUnderTest, engines: list[MicroBatchEngine]
) -> None:
    """It has read at least everything that was there at its start, and settled its last batch."""
    engine = MicroBatchEngine(stream.settings(max_records_per_shard=20), available_now=True)
    engines.append(engine)
    stream.put(200)
    there = stream.ids()
    stopping = threading.Event()

    def produce() -> None:
        while not stopping.wait(0.02):
            stream.put(5)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        assert engine.run_until_idle() < 500
    finally:
        stopping.set()
        producer.join(30)
    assert there <= set(all_ids(engine))
    delivered = set(all_ids(engine))
    assert all(
        f"{shard}:{checkpoint}" in delivered for shard, checkpoint in stream.checkpoints().items()
    )
    assert sum(1 for _ in stream.checkpoints()) == len({one.partition(":")[0] for one in delivered})


def test_an_idle_stream_makes_no_batches(stream: StreamUnderTest, engine: MicroBatchEngine) -> None:
    assert engine.run_batch() is False
    assert engine.run_batch() is False
    stream.put(10)
    assert engine.run_batch() is True
    assert engine.run_batch() is False
    assert len(engine.offsets) == 1


def test_records_per_trigger_are_limited(
    stream: StreamUnderTest, engines: list[MicroBatchEngine]
) -> None:
    engine = MicroBatchEngine(stream.settings(max_records_per_trigger=10))
    engines.append(engine)
    stream.put(60)
    engine.run_until_idle()
    assert max(len(rows) for rows in engine.sink.values()) <= 10
    assert sorted(all_ids(engine)) == sorted(stream.ids())


def test_a_trigger_limit_below_the_number_of_shards_reads_all_shards_in_turn(
    stream: StreamUnderTest, engines: list[MicroBatchEngine]
) -> None:
    engine = MicroBatchEngine(stream.settings(max_records_per_trigger=2))
    engines.append(engine)
    stream.put(20)
    engine.run_until_idle()
    assert sorted(all_ids(engine)) == sorted(stream.ids())


def test_bytes_held_by_a_task_are_limited_and_pages_are_cut(
    stream: StreamUnderTest, engines: list[MicroBatchEngine]
) -> None:
    engine = MicroBatchEngine(stream.settings(max_bytes_per_task=100, max_tasks=1))
    engines.append(engine)
    stream.put(100)
    engine.run_until_idle()
    assert max(sum(len(row["data"]) for row in rows) for rows in engine.sink.values()) <= 100
    assert sorted(all_ids(engine)) == sorted(stream.ids())


def test_a_second_query_of_the_same_application_is_refused(
    stream: StreamUnderTest, engine: MicroBatchEngine, engines: list[MicroBatchEngine]
) -> None:
    stream.put(10)
    engine.run_batch()
    second = MicroBatchEngine(stream.settings(owner_wait="200ms"))
    engines.append(second)
    with pytest.raises(OwnedByAnotherError):
        second.run_batch()
    engine.stop()
    assert second.run_batch() is True


def test_a_stream_recreated_under_its_name_is_refused(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    stream.put(10)
    engine.run_batch()
    engine.stop()
    stream.client.delete_stream(StreamName=STREAM, EnforceConsumerDeletion=True)
    stream.clock.advance(60)
    create_stream(stream.client, STREAM, shards=1)
    with pytest.raises(StreamMismatchError, match="kinesis-spout reset"):
        engine.run_batch()


def test_records_past_retention_stop_the_query_or_are_reported_by_option(
    stream: StreamUnderTest, engine: MicroBatchEngine, engines: list[MicroBatchEngine]
) -> None:
    stream.put(100)
    engine.run_batch()
    engine.stop()
    stream.clock.advance(26 * 3600)
    stream.put(10)
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        engine.run_until_idle()
    engine.stop()
    lenient = MicroBatchEngine(stream.settings(fail_on_data_loss=False))
    engines.append(lenient)
    lenient.run_until_idle()
    assert len(lenient.delivered) >= 10


def test_errors_come_before_any_record_is_read(stream: StreamUnderTest) -> None:
    missing = MicroBatchEngine(stream.settings(stream="no-such-stream"))
    with pytest.raises(StreamNotFoundError, match="no-such-stream"):
        missing.run_batch()
    missing.stop()
    nowhere = MicroBatchEngine(stream.settings(zookeeper="127.0.0.1:1"))
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1"):
        nowhere.run_batch()
    nowhere.stop()


def test_an_offset_of_a_newer_format_is_refused(
    stream: StreamUnderTest, engine: MicroBatchEngine
) -> None:
    engine.start()
    assert engine.reader is not None
    with pytest.raises(ConfigError, match="format 2"):
        engine.reader.latestOffset(
            {"format": 2, "plan": "1-a"}, engine.reader.getDefaultReadLimit()
        )
