"""Streams with record distribution AUTO: records may have no partition key, and those of a key are
in any shard.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import AwsConfig
from spark_job import DeadLetter, register
from spark_job.dead_letter.redrive import Redrive
from spark_job.process_services import ProcessServices
from state.retry_policy import RetryPolicy
from tests.support.kinesis.services import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    ServedFake,
    kinesis_client,
    serve,
)
from tests.support.outcomes.tracked import TrackedQuery
from tests.support.shell.consuming import lines_of, run
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import STREAM, ShiftedClock, StreamUnderTest
from tests.support.spout.spouts import spout_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

AWS: dict[str, Any] = {
    "region": REGION,
    "access_key_id": ACCESS_KEY,
    "secret_access_key": SECRET_KEY,
}


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


def options(auto: ServedFake, stream: str = STREAM, **more: str) -> dict[str, str]:
    return {
        "streamName": stream,
        "endpointUrl": auto.endpoint_url,
        "region": REGION,
        "awsAccessKeyId": ACCESS_KEY,
        "awsSecretAccessKey": SECRET_KEY,
    } | more


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
def test_a_failed_record_without_a_key_blocks_nothing(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """Under block_key. Its letter has no key either, in a function's hands and on a stream."""
    stream.client.create_stream(StreamName="dead", ShardCount=1)
    query = TrackedQuery(spark, stream, tmp_path / "checkpoint")
    taken: list[list[bytes]] = []

    def process(batch: Any) -> None:
        batch.fail(batch.df.where("partitionKey IS NULL"), "no key, no luck")
        taken.append([bytes(row.data) for row in batch.df.select("data").collect()])

    source = {"available_now_retry_wait": "60s"}
    query.run(process, source=source, on_failure="block_key", retry_limit=1)
    first, second = taken
    assert sorted(first) == [data for data, _ in EXPECTED]  # each in the first batch
    assert sorted(second) == [data for data, key in EXPECTED if key is None]
    assert [letter.partition_key for letter in query.letters] == [None] * 8
    assert query.unresolved() == {}
    sink = DeadLetter.to_stream("dead", endpoint_url=stream.endpoint_url, **AWS)
    source["starting_position"] = "TRIM_HORIZON"
    query = TrackedQuery(spark, stream, tmp_path / "another")
    source["application"] = "another"
    query.run(process, source=source, retry_limit=0, dead_letter=sink)
    page = stream.client.get_records(
        ShardIterator=stream.client.get_shard_iterator(
            StreamName="dead", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
    )
    letters = [(json.loads(one["Data"]), one["PartitionKey"]) for one in page["Records"]]
    assert len(letters) == 8
    assert {letter["partitionKey"] for letter, _ in letters} == {None}
    assert all(key == letter["messageId"] for letter, key in letters)


@pytest.mark.spark
def test_a_redrive_puts_letters_without_a_key_under_their_message_ids(
    spark: SparkSession, stream: StreamUnderTest, auto: ServedFake, tmp_path: Path
) -> None:
    query = TrackedQuery(spark, stream, tmp_path / "checkpoint")
    dead = DeadLetter("parquet", path=str(tmp_path / "dead"))
    query.run(
        lambda batch: batch.fail(batch.df, "all of them", retry=False),
        retry_limit=0,
        dead_letter=dead,
    )
    before = on(auto)
    aws = AwsConfig(endpoint_url=auto.endpoint_url, **AWS)
    assert Redrive.open(spark, str(tmp_path / "dead"), aws=aws).put() == 12
    letters = spark.read.parquet(str(tmp_path / "dead")).collect()
    ids = {bytes(letter.data): letter.messageId for letter in letters}
    put = [(data, ids[data] if key is None else key) for data, key in before]
    assert sorted(on(auto), key=str) == sorted([*before, *put], key=str)


@pytest.mark.spark
def test_a_batch_read_gives_nulls_and_the_sink_gives_such_records_random_keys(
    spark: SparkSession, auto: ServedFake
) -> None:
    """Of as many shards as there are: the sink does not foresee which one takes a record."""
    register(spark)
    auto.model.create("copy", shards=4, distribution="AUTO")
    pace = {"readsPerSecond": "1000"}
    frame = spark.read.format("kinesis").options(**options(auto, **pace)).load()
    rows = [(bytes(row.data), row.partitionKey) for row in frame.collect()]
    assert sorted(rows, key=lambda row: row[0]) == EXPECTED
    frame.write.format("kinesis").options(**options(auto, "copy")).mode("append").save()
    copied = on(auto, "copy")
    assert [data for data, _ in copied] == [data for data, _ in on(auto)]
    given = dict(EXPECTED)
    assert all(key == "same" if given[data] else key and len(key) == 16 for data, key in copied)
    with pytest.raises(Exception, match="option ordering is key, but stream copy spreads the"):
        frame.write.format("kinesis").options(**options(auto, "copy", ordering="key")).mode(
            "append"
        ).save()
    assert on(auto, "copy") == copied


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
