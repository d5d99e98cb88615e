"""Records of 10 MiB, the most that the service takes, on every way through the package."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import AwsConfig, StreamRef
from spark_job import DeadLetter, Retry, register
from spark_job.dead_letter.redrive import Redrive, Selection
from spark_job.options import OPTIONS
from state.retry_policy import RetryPolicy
from tests.support.kinesis import memory_of_reading
from tests.support.kinesis.large_records import (
    KEY,
    LARGEST,
    MIB,
    digests,
    largest,
    take_large_records,
)
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY, ServedFake
from tests.support.shell.consuming import lines_of, run
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import STREAM, StreamUnderTest
from tests.support.spout.spouts import spout_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kinesis_spout.testing import FakeKinesis
    from tests.support.outcomes.tracked import TrackedQuery

MEMORY_OF_READING = Path(memory_of_reading.__file__)
ROOT = MEMORY_OF_READING.parents[3]
SMALL = [b"small %d" % number for number in range(4)]


@pytest.fixture
def large(stream: StreamUnderTest) -> list[bytes]:
    """Two records of 10 MiB between small ones, in one shard and in order."""
    take_large_records(stream.client, STREAM)
    payloads = [SMALL[0], largest(0), SMALL[1], SMALL[2], largest(1), SMALL[3]]
    for payload in payloads:
        stream.put_record(KEY, payload)
    return payloads


def connection(stream: StreamUnderTest) -> dict[str, str]:
    return {
        "streamName": STREAM,
        "endpointUrl": stream.endpoint_url,
        "region": REGION,
        "awsAccessKeyId": ACCESS_KEY,
        "awsSecretAccessKey": SECRET_KEY,
    }


def payloads_on(fake: FakeKinesis, stream: str) -> list[bytes]:
    return [
        record.data
        for shard in fake.shards(stream)
        for record in fake.records(stream, shard.shard_id)
    ]


@pytest.mark.parametrize("max_bytes", ["64MiB", "1MiB"])
def test_the_source_delivers_them_in_order_and_replays_them_exactly(
    stream: StreamUnderTest, large: list[bytes], max_bytes: str
) -> None:
    """Also where a batch may have less than one of them: then it has one."""
    engine = MicroBatchEngine(stream.settings(max_bytes_per_task=max_bytes))
    try:
        while engine.run_batch():
            assert engine.reader is not None
            batch = engine.committed
            start = engine.offsets[batch - 1] if batch else engine.reader.initialOffset()
            again = engine.read(engine.reader.partitions(start, engine.offsets[batch]))
            assert again == engine.sink[batch]
    finally:
        engine.stop()
    found = [row["data"] for rows in engine.sink.values() for row in rows]
    assert [len(data) for data in found] == [len(data) for data in large]
    assert digests(found) == digests(large)
    assert len(engine.sink) >= (4 if max_bytes == "1MiB" else 1)


@pytest.mark.spark
def test_they_are_retried_and_dead_lettered_one_by_one(
    tracked_query: TrackedQuery, large: list[bytes]
) -> None:
    """One of them fails once, the other always. The rest is not held back by them."""
    good, bad = digests([large[1]])[0], digests([large[4]])[0]

    def map_one(record: Any) -> dict[str, object]:
        digest = digests([record.data])[0]
        if digest == bad or (digest == good and record.attempt == 1):
            raise Retry("not now")
        return {"digest": digest, "attempt": record.attempt}

    out: list[tuple[str, int]] = []

    def process(batch: Any) -> None:
        mapped = batch.map_records(map_one, "digest STRING, attempt INT")
        out.extend((row.digest, row.attempt) for row in mapped.collect())

    tracked_query.run(process, source={"available_now_retry_wait": "60s"}, retry_limit=2)
    assert sorted(digest for digest, _ in out) == sorted(
        one for one in digests(large) if one != bad
    )
    assert dict(out)[good] == 2
    assert [(letter.attempts, digests([letter.data])) for letter in tracked_query.letters] == [
        (3, [bad])
    ]
    assert tracked_query.unresolved() == {}


@pytest.mark.spark
def test_letters_on_a_stream_come_back_as_the_records_that_they_were(
    tracked_query: TrackedQuery, large: list[bytes], tmp_path: Path
) -> None:
    """In parts, since the stream of the letters takes 1 MiB; read with `spark.read`, written as
    lines of JSON, and put back by a redrive.
    """
    stream, spark = tracked_query.stream, tracked_query.spark
    for name in ("dead", "back"):
        stream.client.create_stream(StreamName=name, ShardCount=1)
    take_large_records(stream.client, "back")
    aws: dict[str, Any] = {
        "region": REGION,
        "endpoint_url": stream.endpoint_url,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }

    def refuse_all(batch: Any) -> None:
        batch.fail(batch.df.where("length(data) > 100"), "too large for us", retry=False)

    tracked_query.run(refuse_all, dead_letter=DeadLetter.to_stream("dead", **aws))
    register(spark)
    letters = spark.read.format("kinesis").options(**connection(stream) | {"streamName": "dead"})
    values = letters.load().selectExpr("CAST(data AS STRING) AS value").cache()
    assert values.where("octet_length(value) > 1048576").count() == 0
    values.write.text(str(tmp_path / "letters"))
    values.unpersist()
    target = Selection(target=StreamRef("back"))
    work = Redrive.open(
        spark, str(tmp_path / "letters"), format="json", selection=target, aws=AwsConfig(**aws)
    )
    assert work.put() == 2
    (shard,) = stream.client.list_shards(StreamName="back")["Shards"]
    iterator = stream.client.get_shard_iterator(
        StreamName="back", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    found = []
    for _ in range(2):
        page = stream.client.get_records(ShardIterator=iterator)
        iterator = page["NextShardIterator"]
        found += [record["Data"] for record in page["Records"]]
    assert digests(found) == digests([large[1], large[4]])


@pytest.mark.spark
def test_a_batch_read_gives_them_and_the_sink_puts_them(
    spark: SparkSession, stream: StreamUnderTest, large: list[bytes]
) -> None:
    """A frame of one stream is written to another, and is read there as it was."""
    register(spark)
    stream.client.create_stream(StreamName="copy", ShardCount=1)
    take_large_records(stream.client, "copy")
    pace = {"readsPerSecond": "1000", "readBytesPerSecond": "1GiB"}
    options = connection(stream) | pace
    frame = spark.read.format("kinesis").options(**options).load()
    assert digests(bytes(row.data) for row in frame.select("data").collect()) == digests(large)
    to_copy = connection(stream) | {"streamName": "copy", "ordering": "key"}
    frame.write.format("kinesis").options(**to_copy).mode("append").save()
    copy = spark.read.format("kinesis").options(**options | {"streamName": "copy"}).load()
    found = [bytes(row.data) for row in copy.select("data").collect()]
    assert list(map(len, found)) == list(map(len, large))
    assert digests(found) == digests(large)


def test_a_spout_emits_retries_and_dead_letters_them(fake_kinesis: ServedFake) -> None:
    """With less room for records read ahead than one of them takes."""
    fake_kinesis.model.create("orders", max_record_kib=10_240)
    payloads = [largest(0), b"small", largest(1)]
    for payload in payloads:
        fake_kinesis.model.put("orders", KEY, payload)
    letters: list[Any] = []
    emitted = []
    with spout_on(
        fake_kinesis,
        until="now",
        prefetch_bytes=MIB,
        retry=RetryPolicy(retry_limit=1, first_delay_ms=10),
        dead_letter=letters.append,
    ) as spout:
        for emission in spout.emissions():
            emitted.append((len(emission.data), emission.attempt))
            if emission.data == payloads[2]:
                emission.fail("too large for us")
            else:
                emission.ack()
    assert emitted == [(LARGEST - 8, 1), (5, 1), (LARGEST - 8, 1), (LARGEST - 8, 2)]
    assert digests(letter.data for letter in letters) == digests([payloads[2]])


def test_the_commands_write_and_put_them(fake_kinesis: ServedFake) -> None:
    fake_kinesis.model.create("orders", max_record_kib=10_240)
    fake_kinesis.model.create("copy", max_record_kib=10_240)
    fake_kinesis.model.put("orders", KEY, largest(0))
    consumed = run(fake_kinesis, "consume", "orders", "--from", "TRIM_HORIZON", "--until", "now")
    (line,) = lines_of(consumed.stdout)
    assert digests([b64decode(line["dataBase64"])]) == digests([largest(0)])
    put = run(fake_kinesis, "produce", "copy", "--json", stdin=consumed.stdout.encode())
    assert put.stderr == "put 1 record on stream copy\n"
    assert digests(payloads_on(fake_kinesis.model, "copy")) == digests([largest(0)])


# memory -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "wire_format"), [("source", "json"), ("source", "cbor"), ("batch", "json")]
)
def test_a_task_holds_some_of_them_however_many_it_reads(
    fake_kinesis: ServedFake, zookeeper_chroot: str, kind: str, wire_format: str
) -> None:
    """One task reads 64 of them from 8 shards. docs/operate.md says how much memory that takes."""
    model = fake_kinesis.model
    model.create("orders", shards=8, max_record_kib=10_240)
    payload = largest(0)
    for key in [key for key in map(str, range(8)) for _ in range(8)]:
        model.put("orders", key, payload, explicit_hash_key=int(key) * 2**125)
    fields: dict[str, object] = {
        "endpoint_url": fake_kinesis.endpoint_url,
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "reads_per_second": 1000,
        "read_bytes_per_second": "1GiB",
        "max_tasks": 1,
        "wire_format": wire_format,
    }
    if kind == "source":
        fields |= {
            "stream": "orders",
            "application": "large",
            "zookeeper": zookeeper_chroot,
            "starting_position": "TRIM_HORIZON",
            "max_bytes_per_task": "1GiB",
            "max_fetch_time": "1m",
        }
    else:
        fields = {OPTIONS[name].name: str(value) for name, value in fields.items()}
        fields["streamName"] = "orders"
    program = [sys.executable, str(MEMORY_OF_READING), kind, json.dumps(fields)]
    answer = json.loads(subprocess.check_output(program, cwd=ROOT, text=True))
    assert answer["read"] == 64 * len(payload)
    assert answer["risen"] < 400 * MIB
