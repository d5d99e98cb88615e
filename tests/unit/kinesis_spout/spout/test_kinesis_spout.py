"""The standalone spout: the fields of an emission, the configuration, and a spout that reads up to
a time, and ends.
"""

from __future__ import annotations

import logging
import pickle
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.checkpoints.application_moves import find_moves, write_moves
from kinesis_spout.checkpoints.moves import RequestedPosition
from kinesis_spout.errors import ConfigError, KinesisError, UnreadableRecordError
from kinesis_spout.spout.kinesis_spout import SpoutConfig
from kinesis_spout.spout.listener import SpoutListener
from kinesis_spout.testing import ManualClock
from kinesis_spout.testing.faults.plan import alter
from state.process import this_process
from tests.support.simulated.simulated_job import SimulatedJob, shard
from tests.support.spout.spout_world import STREAM, SpoutUnderTest, SteppedSpout, emitted, reading

if TYPE_CHECKING:
    from kinesis_spout.spout.kinesis_spout import KinesisSpout
    from tests.support.simulated.simulated_job import SimulatedJob


EFO: dict[str, Any] = {"read_mode": "efo", "consumer_name": "reader"}


def test_an_emission_has_all_fields_of_its_record(one: SimulatedJob) -> None:
    """It was prefetched: no call to the service is made for it."""
    (sequence,) = one.put(1, key="k", data=b"payload", arrival_ms=1_795_000_000_123)
    spout = reading(one)
    one.count_calls()
    (emission,) = spout.drain()
    assert not one.fake.faults.struck
    assert (emission.data, emission.partition_key, emission.attempt) == (b"payload", "k", 1)
    assert emission.sequence_number == str(sequence)
    assert emission.approximate_arrival_ms == 1_795_000_000_123
    assert emission.message_id == emission.record.message_id == f"{shard(0)}:{sequence}:1"
    assert emission.values == (b"payload",)
    assert "payload" not in repr(emission)
    with pytest.raises(KinesisError, match=r"pass emission\.record to the other process"):
        pickle.dumps(emission)
    assert pickle.loads(pickle.dumps(emission.record)) == emission.record  # noqa: S301  # our own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stream": "a b"}, "stream"),
        ({"starting_position": "yesterday"}, "starting_position"),
        ({"application": "a"}, "zookeeper"),
        ({"max_pending": 0}, "max_pending"),
        ({"until": "LATEST"}, "until"),
        ({"shards": "shardId-000000000000"}, "shards: .* must be a tuple of shard ids"),
        ({"shards": (1,)}, "shards: .* must be a tuple of shard ids"),
        ({"listeners": (SpoutListener,)}, "listeners: .* must be a tuple of SpoutListener objects"),
        ({"dead_letter": "dead.jsonl"}, "option dead_letter is of type str"),
        ({"until": "now", "total_tasks": 2}, "until"),
        ({"commit_interval_s": -1}, "commit_interval_s"),
        ({"close_timeout_s": 0.0}, "close_timeout_s"),
        ({"task_index": 2, "total_tasks": 2}, "task_index"),
        ({"total_tasks": 2}, "total_tasks"),
        ({"breaker_failures": 0}, "breaker_failures"),
        ({"read_mode": "push"}, "read_mode: 'push' must be polling or efo"),
        ({"read_mode": "efo"}, "consumer_name: read_mode efo requires either consumer_name or"),
        ({"consumer_name": "a"}, "consumer_name: has an effect only with read_mode efo"),
        (EFO | {"consumer_arn": "arn"}, "requires either consumer_name or consumer_arn"),
        (EFO | {"consumer_name": "a b"}, "consumer_name: 'a b' must be 1 to 128"),
        (
            {
                "read_mode": "efo",
                "consumer_arn": "arn:aws:kinesis:us-east-1:1:stream/other/consumer/me:1",
            },
            "does not belong to stream orders",
        ),
        (EFO | {"efo_fallback_after_s": 0.0}, "efo_fallback_after_s: 0.0 must be above 0"),
    ],
)
def test_a_bad_setting_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SpoutConfig(**({"stream": "orders"} | changes))


def test_a_start_in_the_future_is_named_as_the_configuration_spells_it(one: SimulatedJob) -> None:
    """A front end knows its own name for that."""
    with pytest.raises(ConfigError, match=r"option starting_position: .* in the future") as caught:
        SteppedSpout(one, starting_position="2200-01-01T00:00:00Z")
    assert caught.value.option == "starting_position"


POLLING: dict[str, Any] = {"read_mode": "polling"}
NINE = 1_767_258_000_000  # 2026-01-01T09:00:00Z


def silent_about_the_tip() -> Any:
    """The service leaves MillisBehindLatest out, which its API allows."""
    return alter(lambda page: msgspec.structs.replace(page, millis_behind_latest=None))


def read_to_the_end(
    under_test: SpoutUnderTest,
    spout: KinesisSpout,
    *,
    at_most_s: float = 60,
    came: list[str] | None = None,
) -> list[str]:
    came = [] if came is None else came
    until_s = under_test.clock.monotonic_s() + at_most_s
    while not spout.has_ended and under_test.clock.monotonic_s() < until_s:
        under_test.loops.take()
        for emission in iter(spout.next_tuple, None):
            came.append(f"{emission.shard_id}:{emission.sequence_number}")
            emission.ack()
        under_test.clock.advance(0.2)
    return came


@pytest.mark.parametrize("read_mode", [POLLING, EFO], ids=["polling", "efo"])
def test_a_shard_that_does_not_say_how_far_behind_it_is_is_read_until_now(
    read_mode: dict[str, Any],
) -> None:
    """One that gives nothing twice in a row is at its tip; or a subscription that pushes nothing.
    A single page without records is not: what was behind it would be left unread.
    """
    under_test = SpoutUnderTest()
    put = under_test.put(5)
    under_test.clock.advance(5)
    faults = under_test.fake.faults
    for operation in ("GetRecords", "SubscribeToShard"):
        faults.add(silent_about_the_tip(), operation=operation, times=None)
    with under_test.fresh(until="now", **read_mode) as spout:
        assert read_to_the_end(under_test, spout) == put
        assert spout.has_ended


@pytest.mark.parametrize("until", ["9:00", "2026-01-01T09:00", "10:00+01:00"])
def test_a_time_without_a_zone_is_in_utc_and_of_the_services_day(
    until: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the machine's zone is. A time that is not over is waited for, and a word is said."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    under_test = SpoutUnderTest(clock=ManualClock(NINE - 60_000))
    put = under_test.put(1)
    with caplog.at_level(logging.WARNING), under_test.fresh(until=until) as spout:
        assert read_to_the_end(under_test, spout, at_most_s=40) == put
        assert not spout.has_ended
        put = under_test.put(1)
        assert read_to_the_end(under_test, spout) == put
        assert spout.has_ended
        assert NINE <= under_test.clock.now_ms() < NINE + 15_000
    assert "until 2026-01-01T09:00:00.000Z, so it waits for that time before it ends" in caplog.text


@pytest.mark.parametrize("arrival_ms", [10**15, -(10**15)], ids=["after 9999", "before 1"])
@pytest.mark.parametrize("read_mode", [POLLING, EFO], ids=["polling", "efo"])
@pytest.mark.parametrize("until", ["now", None])
def test_a_record_with_a_time_that_cannot_be_ends_the_spout_once_those_before_it_are_acked(
    until: str | None, read_mode: dict[str, Any], arrival_ms: int
) -> None:
    """With an error that says which record of which shard, stream and endpoint it is, and how to
    pass over it. Then the others come.
    """
    under_test = SpoutUnderTest()
    before = under_test.put(2)
    name = under_test.fake.put(STREAM, "key", b"x", arrival_ms=arrival_ms)
    shard, _, number = name.partition(":")
    under_test.clock.advance(5)
    came: list[str] = []
    with under_test.fresh(until=until, **read_mode) as spout:
        for _ in range(100):  # nobody takes a record
            under_test.loops.take()
            under_test.clock.advance(0.2)
        with pytest.raises(UnreadableRecordError) as caught:
            read_to_the_end(under_test, spout, came=came)
        assert not spout.has_ended
    assert came == before
    assert f"record {number} of shard {shard} of stream {STREAM} in us-east-1 has" in str(
        caught.value
    )
    assert f"checkpoint set --to AFTER:{number}" in str(caught.value)
    after = under_test.put(1)
    with closing(under_test.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=0)
        wanted = RequestedPosition.parse(f"AFTER:{number}")
        client: Any = under_test.services().client
        clock = under_test.clock
        found = find_moves(client, store, wanted, (shard,), clock=clock, max_counted=9)
        write_moves(store, found, clock.now_ms)
    with under_test.fresh(until=until, **read_mode) as spout:
        assert read_to_the_end(under_test, spout) == after


def test_one_of_several_tasks_ends_after_its_records(one: SimulatedJob) -> None:
    """Once they have an outcome, whatever the other tasks do. Without a limit it never ends."""
    spout, emissions = emitted(one, 3, max_records=2, total_tasks=2)
    spout.coordinate()
    assert not spout.spout.has_ended
    for emission in emissions:
        emission.ack()
    spout.coordinate()
    assert (len(emissions), spout.spout.has_ended) == (2, True)
