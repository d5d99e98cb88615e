"""The standalone spout: the order of records, the limits of pending ones, and the configuration."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kinesis_spout.config import AwsConfig
from kinesis_spout.errors import ConfigError, StreamNotFoundError
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig
from kinesis_spout.testing import internal_failure, throttle
from scheme.json_scheme import JsonScheme
from tests.support.simulated.simulated_job import AGGREGATE, SimulatedJob, shard
from tests.support.spout.stepped_spout import SteppedSpout, spout_settings


# emitting -----------------------------------------------------------------------------------------
def test_shards_take_turns_record_by_record(job: SimulatedJob) -> None:
    """Strict round robin, independent of the sizes of pages."""
    for index in (0, 1):
        job.put(5, key=job.key_of(index))
    spout = SteppedSpout(job)
    spout.fetch()
    shards = [emission.shard_id for emission in spout.drain()]
    assert shards in ([shard(0), shard(1)] * 5, [shard(1), shard(0)] * 5)


def test_a_throttled_shard_delays_no_other(job: SimulatedJob) -> None:
    for index in (0, 1):
        job.put(5, key=job.key_of(index))
    job.fake.faults.add(throttle(), operation="GetRecords", shard_id=shard(0), times=3)
    spout = SteppedSpout(job)
    spout.fetch()
    assert {emission.shard_id for emission in spout.drain()} == {shard(1)}
    for _ in range(4):
        spout.after(10).fetch()
    assert len(spout.drain()) == 5


def test_next_tuple_makes_no_call(one: SimulatedJob) -> None:
    """It returns a prefetched record or None, without a call to the service."""
    one.put(3)
    spout = SteppedSpout(one)
    spout.fetch()
    one.count_calls()
    assert len(spout.drain()) == 3
    assert spout.spout.next_tuple() is None
    assert not one.fake.faults.struck


def test_an_emission_has_all_fields_of_its_record(one: SimulatedJob) -> None:
    (sequence,) = one.put(1, key="k", data=b"payload", arrival_ms=1_795_000_000_123)
    spout = SteppedSpout(one)
    spout.fetch()
    (emission,) = spout.drain()
    assert (emission.data, emission.partition_key, emission.attempt) == (b"payload", "k", 1)
    assert emission.sequence_number == str(sequence)
    assert emission.approximate_arrival_ms == 1_795_000_000_123
    assert emission.message_id == emission.record.message_id == f"{shard(0)}:{sequence}:1"
    assert emission.values == (b"payload",)
    assert "payload" not in repr(emission)


def test_the_scheme_decodes_the_values_and_malformed_records_are_dead_lettered(
    one: SimulatedJob,
) -> None:
    """A record that does not decode is never delivered, never retried, and not lost."""
    for data in (b'{"n": 1}', b"nonsense", b'{"n": 2}'):
        one.put(1, data=data)
    spout = SteppedSpout(one, scheme=JsonScheme("n INT"))
    spout.fetch()
    assert [emission.values for emission in spout.drain()] == [(1,), (2,)]
    spout.step("letters")
    (letter,) = spout.letters
    assert letter.data == b"nonsense"
    assert letter.attempts == 1
    assert spout.spout.metrics().total.counts.malformed == 1


def test_an_aggregate_stops_a_spout_that_refuses_it(one: SimulatedJob) -> None:
    """Its bytes are not a user's record. With `raw` they are delivered as they are."""
    one.put(1, data=AGGREGATE)
    spout = SteppedSpout(one, aggregated_records="fail")
    spout.fetch()
    with pytest.raises(Exception, match="KPL aggregate"):
        spout.spout.next_tuple()
    spout.spout.close()
    raw = SteppedSpout(one, aggregated_records="raw")
    raw.fetch()
    assert [emission.data for emission in raw.drain()] == [AGGREGATE]


# pending ------------------------------------------------------------------------------------------
def test_at_max_pending_retries_go_on_and_new_records_wait(one: SimulatedJob) -> None:
    one.put(10)
    spout = SteppedSpout(one, max_pending=3)
    spout.fetch()
    first, second, third = spout.drain(ack=False)
    assert spout.spout.next_tuple() is None
    first.fail("not now")
    assert [emission.data for emission in spout.drain(ack=False)] == [b"record 3"]
    spout.after(1.0)
    (again,) = spout.drain(ack=False)
    assert (again.data, again.attempt) == (first.data, 2)
    for emission in (second, third):
        emission.ack()
    assert [emission.data for emission in spout.drain(ack=False)] == [b"record 4"], (
        "the retry was the fourth pending one"
    )


def test_retries_go_before_new_records_but_do_not_starve_them(one: SimulatedJob) -> None:
    one.put(30)
    spout = SteppedSpout(one)
    spout.fetch()
    failed = [spout.spout.next_tuple() for _ in range(10)]
    for emission in failed:
        assert emission is not None
        emission.fail()
    spout.after(1.0)
    attempts = [emission.attempt for emission in spout.drain()]
    assert attempts[:10] == [2, 2, 2, 2, 1, 2, 2, 2, 2, 1]
    assert len(attempts) == 30


def test_a_shard_at_its_limit_of_unresolved_records_emits_no_new_ones(job: SimulatedJob) -> None:
    """The other shards go on."""
    for index in (0, 1):
        job.put(5, key=job.key_of(index))
    spout = SteppedSpout(job, max_unresolved_per_shard=2)
    spout.fetch()
    emissions = spout.drain(ack=False)
    assert sorted(emission.shard_id for emission in emissions) == [shard(0)] * 2 + [shard(1)] * 2
    for emission in emissions:
        emission.ack()
    assert len(spout.drain()) == 6


def test_without_tracking_each_emission_counts_as_acked(one: SimulatedJob) -> None:
    one.put(3)
    spout = SteppedSpout(one, tracking=False, max_pending=1)
    spout.fetch()
    emissions = spout.drain(ack=False)
    assert len(emissions) == 3
    assert not emissions[0].fail("too late")
    spout.spout.close()
    assert one.states()[shard(0)].checkpoint_text == emissions[-1].sequence_number


# errors -------------------------------------------------------------------------------------------
def test_open_raises_for_a_missing_stream_and_nothing_stays_open(
    one: SimulatedJob,
) -> None:
    spout = KinesisSpout(
        SpoutConfig(
            **(spout_settings(one) | {"stream": "nowhere", "application": None, "zookeeper": None})
        )
    )
    with pytest.raises(StreamNotFoundError):
        spout.open()
    assert not spout.is_open
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("kinesis-spout")
    ]


def test_a_service_that_stays_down_stops_a_spout_that_is_to_give_up(one: SimulatedJob) -> None:
    """`next_tuple` raises the service's last error."""
    spout = SteppedSpout(one, give_up_after_s=20.0)
    one.fake.faults.add(internal_failure(), operation="GetRecords", times=None)
    for _ in range(30):
        spout.after(1).fetch()
    with pytest.raises(Exception, match="GetRecords"):
        spout.spout.next_tuple()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stream": "a b"}, "stream"),
        ({"starting_position": "yesterday"}, "starting_position"),
        ({"application": "a"}, "zookeeper"),
        ({"max_pending": 0}, "max_pending"),
        ({"commit_interval_s": -1}, "commit_interval_s"),
        ({"task_index": 2, "total_tasks": 2}, "task_index"),
        ({"total_tasks": 2}, "total_tasks"),
        ({"breaker_failures": 0}, "breaker_failures"),
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


def test_no_secret_shows_in_the_configuration() -> None:
    aws = AwsConfig(access_key_id="AKIAEXAMPLE", secret_access_key="very-secret")  # the test's own
    assert "very-secret" not in repr(SpoutConfig(stream="orders", aws=aws))
