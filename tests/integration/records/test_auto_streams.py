"""Streams with record distribution AUTO: records may have no partition key, and those of a key are
in any shard.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from kinesis_spout.errors import ConfigError
from spark_job.process_services import ProcessServices
from spark_job.registration import RegisteredSource
from state.retry_policy import RetryPolicy
from tests.support.kinesis.services import ServedFake, kinesis_client, serve
from tests.support.shell.consuming import lines_of, run
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark import all_ways_through
from tests.support.spark.all_ways_checked import auto_streams, check_records_without_keys
from tests.support.spark.source import STREAM, ShiftedClock, StreamUnderTest
from tests.support.spout.spouts import spout_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def auto() -> Iterator[ServedFake]:
    """A stream of four shards with twelve records: every third has a key, always the same one."""
    with serve(clock=ShiftedClock()) as fake:
        fake.model.create(STREAM, shards=4, distribution="AUTO")
        for number in range(12):
            key = "same" if number % 3 == 0 else None
            fake.model.put(STREAM, key, b"record %d" % number)
        yield fake


EXPECTED: list[tuple[bytes, str | None]] = [
    (b"record %d" % n, "same" if n % 3 == 0 else None) for n in sorted(range(12), key=str)
]


@pytest.fixture
def stream(auto: ServedFake, zookeeper_chroot: str) -> Iterator[StreamUnderTest]:
    with kinesis_client(auto.endpoint_url) as client:
        clock = auto.model.clock
        assert isinstance(clock, ShiftedClock)
        yield StreamUnderTest(client, auto.endpoint_url, zookeeper_chroot, clock)
        ProcessServices.forget_all()


def on(auto: ServedFake, stream: str = STREAM) -> list[tuple[bytes, str | None]]:
    """Data and key of all records, sorted by data."""
    return sorted(
        (
            (record.data, record.partition_key)
            for shard in auto.model.shards(stream)
            for record in auto.model.records(stream, shard.shard_id)
        ),
        key=lambda found: found[0],
    )


@pytest.mark.parametrize("wire_format", ["json", "cbor"])
def test_the_source_gives_null_for_a_key_that_is_not_there(
    stream: StreamUnderTest, wire_format: str
) -> None:
    engine = MicroBatchEngine(stream.settings(wire_format=wire_format))
    try:
        engine.run_until_idle()
    finally:
        engine.stop()
    assert (
        sorted(
            ((row["data"], row["partitionKey"]) for row in engine.delivered), key=lambda one: one[0]
        )
        == EXPECTED
    )
    shards = {row["shardId"] for row in engine.delivered if row["partitionKey"] == "same"}
    assert len(shards) == 4  # so its records have no order


@pytest.mark.spark
def test_records_without_keys_come_through_a_query_a_batch_read_the_sink_and_a_redrive(
    spark: SparkSession, zookeeper_chroot: str, tmp_path: Path
) -> None:
    with auto_streams(zookeeper_chroot) as (stream, model):
        run_it = partial(all_ways_through.run, spark)
        check_records_without_keys(run_it, stream, model, 300, tmp_path)
        ProcessServices.forget_all()


def test_the_sink_keeps_no_order_on_such_a_stream(stream: StreamUnderTest) -> None:
    source = RegisteredSource(stream.connection(ordering="key"))
    with pytest.raises(ConfigError, match=f"option ordering is key, but stream {STREAM} spreads"):
        source.writer(StructType().add("data", "binary"), overwrite=False)


def test_a_spout_emits_and_dead_letters_records_without_keys(auto: ServedFake) -> None:
    letters: list[Any] = []
    emitted = []
    retry = RetryPolicy(retry_limit=0)
    with spout_on(
        auto, stream=STREAM, until="now", retry=retry, dead_letter=letters.append
    ) as spout:
        for emission in spout.emissions():
            emitted.append((emission.data, emission.partition_key))
            emission.fail("no") if emission.partition_key is None else emission.ack()
    assert sorted(emitted, key=lambda found: found[0]) == EXPECTED
    assert [letter.partition_key for letter in letters] == [None] * 8


def test_consume_leaves_the_key_out_and_produce_takes_its_lines(auto: ServedFake) -> None:
    auto.model.create("copy", shards=2, distribution="AUTO")
    consumed = run(auto, "consume", STREAM, "--from", "TRIM_HORIZON", "--until", "now")
    lines = lines_of(consumed.stdout)
    assert sorted(line["data"] for line in lines if "key" not in line) == sorted(
        data.decode() for data, key in EXPECTED if key is None
    )
    put = run(auto, "produce", "copy", "--json", stdin=consumed.stdout.encode())
    assert put.stderr == "put 12 records on stream copy\n"
    assert [data for data, _ in on(auto, "copy")] == [data for data, _ in on(auto)]
