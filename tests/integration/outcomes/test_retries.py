"""Exactly the records that failed are read again. None is lost, and none is acked unread."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import ConfigError
from spark_job.process_services import open_store
from state.report import OnFailure
from tests.support.simulated.micro_batch_engine import TRACKED_CRASHES, Crash, MicroBatchEngine, Row
from tests.support.simulated.played_outcomes import PlayedOutcomes, policy
from tests.support.spark.source import StreamUnderTest, ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Start = "Callable[..., MicroBatchEngine]"


@pytest.fixture
def start(stream: StreamUnderTest) -> Iterator[Callable[..., MicroBatchEngine]]:
    """Starts engines with tracked batches. `fails` returns why a row's record fails, or None."""
    made: list[MicroBatchEngine] = []

    def begin(
        fails: Callable[[Row], str | None], *, available_now: bool = False, **options: Any
    ) -> MicroBatchEngine:
        outcomes = options.pop("policy", policy())
        settings = stream.settings(**options)
        engine = MicroBatchEngine(settings, available_now=available_now)
        engine.tracked = PlayedOutcomes(
            lambda: open_store(settings), SystemClock().now_ms, fails, outcomes
        )
        made.append(engine)
        return engine

    yield begin
    for engine in made:
        engine.stop()


def always(*numbers: int) -> Callable[[Row], str | None]:
    """The records with these numbers always fail."""
    poison = {f"record {number}".encode() for number in numbers}
    return lambda row: "poison" if row["data"] in poison else None


def until_attempt(attempt: int, *numbers: int) -> Callable[[Row], str | None]:
    """The records with these numbers fail before that attempt."""
    fails = always(*numbers)
    return lambda row: fails(row) if row["attempt"] < attempt else None


def sunk(engine: MicroBatchEngine) -> list[str]:
    return [one for _, rows in sorted(engine.sink.items()) for one in ids_of(rows)]


def unresolved(stream: StreamUnderTest) -> int:
    return sum(state.unresolved_count for state in stream.states().values())


def test_only_the_failed_records_are_delivered_again_and_then_acked(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(200)
    engine = start(until_attempt(2, 7, 8, 150), max_records_per_shard=1000)
    engine.run_until_idle()
    assert sorted(sunk(engine)) == sorted(stream.ids())
    again = [row for row in engine.delivered if row["attempt"] > 1]
    assert sorted(row["data"] for row in again) == [b"record 150", b"record 7", b"record 8"]
    assert all(row["messageId"] == f"{row['shardId']}:{row['sequenceNumber']}:2" for row in again)
    assert stream.checkpoints() == stream.tips()


def test_a_poison_record_is_dead_lettered_after_its_last_retry_and_the_checkpoint_passes_it(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(100)
    engine = start(always(5), policy=policy(retry_limit=2))
    engine.run_until_idle()
    assert engine.tracked is not None
    assert [(attempts, reason) for _, attempts, reason in engine.tracked.letters] == [(3, "poison")]
    assert Counter(row["attempt"] for row in engine.delivered) == {1: 100, 2: 1, 3: 1}
    assert stream.checkpoints() == stream.tips()
    assert unresolved(stream) == 0


def test_new_records_go_on_while_a_record_waits_for_its_retry(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(50)
    engine = start(always(5), policy=policy(first_delay_ms=3_600_000, max_delay_ms=3_600_000))
    engine.run_until_idle()
    stream.put(50)
    engine.run_until_idle()
    assert len(set(sunk(engine))) == 99
    assert unresolved(stream) == 1


def test_attempts_are_kept_over_restarts(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(40)
    engine = start(always(3))
    while engine.run_batch():
        engine.stop()
    assert engine.tracked is not None
    assert [attempts for _, attempts, _ in engine.tracked.letters] == [4]
    assert Counter(row["attempt"] for row in engine.delivered) == {1: 40, 2: 1, 3: 1, 4: 1}


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("crash_at", TRACKED_CRASHES)
def test_a_driver_that_dies_at_any_point_repeats_a_batch_exactly_and_loses_no_retry(
    crash_at: str, batch: int, stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(60)
    engine = start(until_attempt(3, 1, 2, 30, 31, 59), max_records_per_shard=10)
    for _ in range(batch):
        engine.run_batch()
    with pytest.raises(Crash):
        engine.run_batch(crash_at)
    before = len(engine.delivered)
    first = engine.delivered[:]
    stream.put(5)
    engine.run_batch()
    if crash_at in ("read", "opened", "reported", "sunk"):
        again = engine.delivered[before:]
        assert first[len(first) - len(again) :] == again
    engine.run_until_idle()
    assert sorted(sunk(engine)) == sorted(stream.ids())
    assert stream.checkpoints() == stream.tips()
    assert unresolved(stream) == 0


def test_a_retry_that_no_task_has_read_stays_in_the_queue(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    """The sink of the batch with the retries reads nothing."""
    stream.put(40)
    engine = start(until_attempt(2, 3))
    engine.run_batch()
    read, engine.read = engine.read, lambda partitions: []  # type: ignore[method-assign]  # a sink that takes nothing
    engine.run_batch()
    assert unresolved(stream) == 1
    engine.read = read  # type: ignore[method-assign]
    engine.run_until_idle()
    assert sorted(sunk(engine)) == sorted(stream.ids())


# missing reports
def test_a_batch_without_a_report_is_delivered_again_once_the_application_tracks(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(40)
    engine = start(always())
    engine.run_until_idle()
    stream.put(40)
    assert engine.tracked is not None
    engine.tracked.reports = False
    engine.run_batch()
    missed = set(ids_of(engine.sink[engine.committed]))
    engine.tracked.reports = True
    before = len(engine.delivered)
    engine.run_until_idle()
    assert set(ids_of(engine.delivered[before:])) == missed
    assert stream.checkpoints() == stream.tips()


def test_the_second_batch_in_a_row_without_a_report_ends_the_query_and_says_what_to_do(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(40)
    engine = start(always())
    engine.run_until_idle()
    stream.put(40)
    assert engine.tracked is not None
    engine.tracked.reports = False
    engine.run_batch()
    engine.run_batch()
    with pytest.raises(ConfigError, match=r"src\.tracked.*wholeBatchAck"):
        engine.run_batch()
    assert len(stream.checkpoints()) == 4
    assert stream.checkpoints() != stream.tips()


def test_a_report_that_is_opened_again_means_redelivery(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(40)
    engine = start(until_attempt(2, 3))
    engine.run_batch()
    _lose_report(engine)
    engine.run_until_idle()
    assert sorted(set(sunk(engine))) == sorted(stream.ids())
    assert Counter(row["attempt"] for row in engine.delivered) == {1: 80, 2: 1}
    assert unresolved(stream) == 0


def _lose_report(engine: MicroBatchEngine) -> None:
    """Open the report again, as a batch that then dies. An open report does not count."""
    with closing(open_store(engine.settings)) as store:
        pointer = store.read_pointer()
        assert pointer is not None
        store.open_report(pointer.id, "lost")


def test_whole_batch_ack_takes_the_mark_off_and_acks_queued_records_once_they_are_read(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(40)
    engine = start(always(3), policy=policy(first_delay_ms=1, max_delay_ms=1))
    engine.run_batch()
    engine.stop()
    plain = start(always(), whole_batch_ack=True)
    plain.offsets, plain.committed, plain.tracked = engine.offsets, engine.committed, None
    plain.run_until_idle()
    assert [row["attempt"] for row in plain.delivered] == [2]
    assert unresolved(stream) == 0
    assert stream.checkpoints() == stream.tips()
    with closing(open_store(plain.settings)) as store:
        assert store.read_policy() is None


def test_a_batch_of_another_plan_than_the_open_one_is_not_reported(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    """An old checkpoint location is restored while a plan is open. Its batch must not count as that
    plan's batch.
    """
    stream.put(200)
    engine = start(always(), max_records_per_shard=10)
    engine.run_batch()
    old = (list(engine.offsets), engine.committed - 1)
    engine.run_batch()
    with pytest.raises(Crash):
        engine.run_batch("read")
    engine.stop()
    engine.offsets, engine.committed = old
    assert engine.tracked is not None
    reports = len(engine.tracked.done)
    engine.run_batch()
    assert len(engine.tracked.done) == reports
    engine.run_until_idle()
    assert set(ids_of(engine.delivered)) == stream.ids()
    assert stream.checkpoints() == stream.tips()


# order
@pytest.mark.parametrize("on_failure", [OnFailure.BLOCK_KEY, OnFailure.BLOCK_SHARD])
def test_later_records_of_a_key_or_shard_wait_for_the_retry_of_an_earlier_one(
    on_failure: OnFailure, stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    """The records of each key are processed in the order in which they were put, for any number of
    failures.
    """
    keys = [f"key {number % 7}" for number in range(140)]
    _put(stream, keys)
    fails_until = {number: 1 + number % 3 for number in range(0, 140, 9)}

    def fails(row: Row) -> str | None:
        number = int(row["data"].split()[1])
        return "not yet" if row["attempt"] <= fails_until.get(number, 0) else None

    engine = start(fails, policy=policy(on_failure), max_records_per_shard=10)
    processed: list[Row] = []
    while engine.run_batch():
        processed += engine.sink[engine.committed]
    for key in set(keys):
        numbers = [int(row["data"].split()[1]) for row in processed if row["partitionKey"] == key]
        assert numbers == [number for number, one in enumerate(keys) if one == key]
    assert unresolved(stream) == 0
    assert stream.checkpoints() == stream.tips()


def _put(stream: StreamUnderTest, keys: list[str]) -> None:
    for number, key in enumerate(keys):
        answer = stream.client.put_record(
            StreamName="orders", PartitionKey=key, Data=f"record {number}".encode()
        )
        stream.records.setdefault(answer["ShardId"], []).append(answer["SequenceNumber"])


def test_with_block_key_no_new_record_overtakes_a_retry_that_does_not_fit_into_its_task(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    """A task holds about five records, and many records wait at a time."""
    keys = [f"key {number % 5}" for number in range(120)]
    _put(stream, keys)
    engine = start(
        lambda row: "not yet" if row["attempt"] == 1 and not row["data"].endswith(b"7") else None,
        policy=policy(OnFailure.BLOCK_KEY),
        max_bytes_per_task=50,
    )
    processed: list[Row] = []
    while engine.run_batch():
        processed += engine.sink[engine.committed]
    for key in set(keys):
        numbers = [int(row["data"].split()[1]) for row in processed if row["partitionKey"] == key]
        assert numbers == [number for number, one in enumerate(keys) if one == key]
    assert unresolved(stream) == 0


# shards that end
def test_queued_retries_of_a_drained_parent_do_not_hold_its_children(
    stream: StreamUnderTest, start: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(100)
    for _ in range(4):
        stream.split()
    stream.put(100)
    broken = [True]
    parents = set(stream.records)
    engine = start(
        lambda row: (
            "not yet"
            if broken[0] and row["data"].endswith(b"3") and row["shardId"] in parents
            else None
        ),
        policy=policy(retry_limit=1_000_000),
    )
    while len(set(ids_of(engine.delivered))) < 200:
        assert engine.run_batch()
    engine.run_batch()
    assert any(state.end_was_read and not state.finished for state in stream.states().values())
    broken[0] = False
    engine.run_until_idle()
    assert sorted(sunk(engine)) == sorted(stream.ids())
    assert all(state.finished for state in stream.states().values() if state.end_was_read)
    assert unresolved(stream) == 0
