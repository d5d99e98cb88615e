"""The standalone spout: the order of records, the limits of pending ones, and the configuration."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kinesis_spout.config import AwsConfig
from kinesis_spout.errors import ConfigError, StreamNotFoundError
from kinesis_spout.spout.kinesis_spout import SpoutConfig
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.simulated.simulated_job import SimulatedJob, shard
from tests.support.spout.spouts import spout_of
from tests.support.spout.stepped_spout import SteppedSpout, reading

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


def test_open_raises_for_a_missing_stream_and_nothing_stays_open(one: SimulatedJob) -> None:
    aws = AwsConfig(
        region=REGION,
        endpoint_url=one.endpoint_url,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
    )
    spout = spout_of(aws, stream="nowhere")
    with pytest.raises(StreamNotFoundError):
        spout.open()
    assert not spout.is_open
    assert not [one for one in threading.enumerate() if one.name.startswith("kinesis-spout")]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stream": "a b"}, "stream"),
        ({"starting_position": "yesterday"}, "starting_position"),
        ({"application": "a"}, "zookeeper"),
        ({"max_pending": 0}, "max_pending"),
        ({"max_records": 0}, "max_records"),
        ({"until": "LATEST"}, "until"),
        ({"shards": "shardId-000000000000"}, "shards: .* must be a tuple of shard ids"),
        ({"dead_letter": "dead.jsonl"}, "option dead_letter is of type str"),
        ({"until": "TRIM_HORIZON"}, "until"),
        ({"until": "soon"}, "until"),
        ({"until": "now", "total_tasks": 2}, "until"),
        ({"commit_interval_s": -1}, "commit_interval_s"),
        ({"close_timeout_s": 0.0}, "close_timeout_s"),
        ({"task_index": 2, "total_tasks": 2}, "task_index"),
        ({"total_tasks": 2}, "total_tasks"),
        ({"breaker_failures": 0}, "breaker_failures"),
        ({"aggregated_records": "keep"}, "aggregated_records.*unpack, fail or raw"),
        ({"read_mode": "push"}, "read_mode: 'push' must be polling or efo"),
        ({"read_mode": "efo"}, "consumer_name: with read_mode efo, set either consumer_name or"),
        ({"consumer_name": "a"}, "consumer_name: has an effect only with read_mode efo"),
        (EFO | {"consumer_arn": "arn"}, "set either consumer_name or consumer_arn"),
        (EFO | {"consumer_name": "a b"}, "consumer_name: 'a b' must be 1 to 128"),
        ({"read_mode": "efo", "consumer_arn": "arn:x"}, "consumer_arn: 'arn:x' must be the ARN"),
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


@pytest.mark.parametrize(
    ("until", "ms"), [("now", 102_000), ("-1m", 40_000), ("1970-01-01T00:00:05Z", 5_000)]
)
def test_a_time_is_told_as_now_as_iso_or_as_ago(until: str, ms: int) -> None:
    """Now is a little later than the service's clock, which is cut to seconds."""
    assert SpoutConfig(stream="orders", until=until).until_ms(100_000) == ms


def test_a_start_in_the_future_is_named_as_the_configuration_spells_it(one: SimulatedJob) -> None:
    """A front end knows its own name for that."""
    with pytest.raises(ConfigError, match=r"option starting_position: .* in the future") as caught:
        SteppedSpout(one, starting_position="2200-01-01T00:00:00Z")
    assert caught.value.option == "starting_position"
