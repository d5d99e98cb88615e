"""Records of 10 MiB, the most that the service takes, and records of streams with record
distribution AUTO, which may have no key and are in any shard: on every way through the package.
"""

from __future__ import annotations

import itertools
import json
from base64 import b64decode
from collections import Counter
from contextlib import contextmanager
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it
from pyspark.sql.types import StructType

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.dead_letter.files import LetterFormat
from kinesis_spout.dead_letter.redrive import Redrive, Selection
from kinesis_spout.errors import ConfigError
from spark_job import DeadLetter, KinesisSource, Retry, register
from spark_job.dead_letter.spark_files import SparkLetterFiles
from spark_job.process_services import ProcessServices
from spark_job.registration import RegisteredSource
from state.retry_policy import RetryPolicy
from tests.support.kinesis.large_records import (
    KEY,
    LARGEST,
    MIB,
    digests,
    largest,
    take_large_records,
)
from tests.support.kinesis.services import (
    ServedFake,
    create_stream,
    fields_of,
    kinesis_client,
    options_of,
    records_on,
    serve,
)
from tests.support.shell.consuming import lines_of, run
from tests.support.spark.source import STREAM, ShiftedClock, StreamUnderTest
from tests.support.spark.spark_job_under_test import caught_up
from tests.support.spout.spouts import spout_on
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.testing import FakeKinesis
    from kinesis_spout.testing.stream.shard import StoredRecord
    from scheme import Record
    from spark_job import TrackedBatch

DEAD, COPY, BACK = "dead", "copy", "back"
STREAMS = (STREAM, DEAD, COPY, BACK)


# through everything that Spark does with a stream -------------------------------------------------
class AllWays:
    """A tracked query whose dead letters go to a stream, a batch read, the sink, and a redrive.
    `bad` and `late`: SHA-256 of payloads that fail always, and in their first attempt. `tracking`:
    arguments of `tracked`; `sink`: options of the sink.
    """

    def __init__(self, spark: SparkSession, stream: StreamUnderTest, folder: Path) -> None:
        register(spark)
        self._spark, self._stream, self._folder = spark, stream, folder

    def run(
        self, *, bad: list[str], late: list[str], tracking: dict[str, Any], sink: dict[str, str]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], int]:
        """What was processed, what the batch read has, and how many records were redriven. Payloads
        are returned as their SHA-256, made on the executors.
        """
        tracked = self._run_query(frozenset(bad), frozenset(late), tracking)
        frame = self._load(STREAM)
        rows = frame.select(F.sha2("data", 256), "partitionKey", F.length("data")).collect()
        to_copy = self._stream.connection(streamName=COPY) | sink
        frame.write.format("kinesis").options(**to_copy).mode("append").save()
        letters = f"{self._folder}/letters"
        self._load(DEAD).selectExpr("CAST(data AS STRING) AS value").write.text(letters)
        aws = AwsConfig(**fields_of(self._stream.endpoint_url))
        files = SparkLetterFiles(self._spark, letters)
        with Redrive(files, Selection(target=StreamRef(BACK)), aws) as redrive:
            redrive.read(LetterFormat.JSON)
            put = redrive.put()
        return tracked, [tuple(row) for row in rows], put

    def _run_query(
        self, bad: frozenset[str], late: frozenset[str], tracking: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Payload, key, attempt, shard and number of the batch of each processed record."""
        processed: list[tuple[Any, ...]] = []
        batches = itertools.count()

        def look(record: Record) -> dict[str, Any]:
            digest = sha256(record.data).hexdigest()
            if digest in bad or (digest in late and record.attempt == 1):
                raise Retry("not now")
            return {
                "digest": digest,
                "key": record.partition_key,
                "attempt": record.attempt,
                "shard": record.shard_id,
            }

        def process(batch: TrackedBatch) -> None:
            number = next(batches)
            rows = batch.map_records(look, "digest STRING, key STRING, attempt INT, shard STRING")
            processed.extend((*row, number) for row in rows.collect())

        source = KinesisSource(**self._stream.fields(available_now_retry_wait="60s"))
        aws: dict[str, Any] = fields_of(self._stream.endpoint_url)
        letters = DeadLetter.to_stream(DEAD, **aws)
        fast: dict[str, Any] = {
            "retry_limit": 2,
            "retry_first_delay": "10ms",
            "retry_max_delay": "20ms",
        }
        tracked = source.tracked(process, dead_letter=letters, **(fast | tracking))
        writer = source.read_stream(self._spark).writeStream.foreachBatch(tracked)
        caught_up(writer, f"{self._folder}/checkpoint")
        return processed

    def _load(self, stream: str) -> DataFrame:
        pace = {"readsPerSecond": "1000", "readBytesPerSecond": "1GiB"}
        options = self._stream.connection(streamName=stream) | pace
        return self._spark.read.format("kinesis").options(**options).load()


# large records ------------------------------------------------------------------------------------
@contextmanager
def large_streams(endpoint: str, zookeeper: str) -> Iterator[StreamUnderTest]:
    """Streams of one shard, which take large records, except the one of the letters."""
    with kinesis_client(endpoint, read_timeout_s=60) as client:
        for name in STREAMS:
            create_stream(client, name)
        for name in (STREAM, COPY, BACK):
            take_large_records(client, name)
        yield StreamUnderTest(client, endpoint, zookeeper, ShiftedClock())
        for name in STREAMS:
            client.delete_stream(StreamName=name)
        wait_until(lambda: not client.list_streams()["StreamNames"])


@pytest.mark.spark
def test_they_come_through_a_query_a_batch_read_the_sink_and_a_redrive(
    spark: SparkSession, fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """One by one and whole, and the sink keeps the order of their key. One of them fails once,
    another one always: its letter is on a stream that takes 1 MiB, and the redrive puts it together
    again.
    """
    with large_streams(fake_kinesis.endpoint_url, zookeeper_chroot) as stream:
        check_large_records(AllWays(spark, stream, tmp_path), stream)
        ProcessServices.forget_all()


def check_large_records(ways: AllWays, stream: StreamUnderTest) -> None:
    random = Random(15)  # noqa: S311  # not a secret
    sizes = [9, LARGEST - len(KEY), 9, LARGEST - len(KEY), 9]
    payloads = [random.randbytes(count) for count in sizes]
    for payload in payloads:
        stream.put_record(KEY, payload)
    ((late,), (bad,)) = digests([payloads[1]]), digests([payloads[3]])
    tracked, batch, redriven = ways.run(
        late=[late], bad=[bad], tracking={}, sink={"ordering": "key"}
    )
    assert Counter((digest, attempt) for digest, _, attempt, *_ in tracked) == Counter(
        (digest, 2 if digest == late else 1) for digest in digests(payloads) if digest != bad
    )
    assert sorted(digest for digest, _, _ in batch) == digests(payloads)
    copied = [one["Data"] for one in records_on(stream.client, COPY)]
    assert [digests([one]) for one in copied] == [digests([one]) for one in payloads]
    parts = records_on(stream.client, DEAD)
    assert len(parts) > LARGEST // MIB
    assert max(len(one["Data"]) + len(one["PartitionKey"].encode()) for one in parts) <= MIB
    assert redriven == 1
    assert digests(one["Data"] for one in records_on(stream.client, BACK)) == [bad]
    assert stream.checkpoints() == stream.tips()


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


# streams with record distribution AUTO ------------------------------------------------------------
@pytest.fixture
def auto() -> Iterator[ServedFake]:
    """A stream of four shards with twelve records: every third has a key, always the same one."""
    with serve(clock=ShiftedClock()) as fake:
        fake.model.create(STREAM, shards=4, distribution="AUTO", max_record_kib=10_240)
        for number in range(12):
            key = "same" if number % 3 == 0 else None
            fake.model.put(STREAM, key, b"record %d" % number)
        yield fake


EXPECTED: list[tuple[bytes, str | None]] = [
    (b"record %d" % n, "same" if n % 3 == 0 else None) for n in sorted(range(12), key=str)
]


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


def digest_of(record: StoredRecord) -> str:
    return sha256(record.data).hexdigest()


@contextmanager
def auto_streams(zookeeper: str) -> Iterator[tuple[StreamUnderTest, FakeKinesis]]:
    """The streams, with record distribution AUTO but for the one of the letters."""
    clock = ShiftedClock()
    with serve(clock=clock) as fake, kinesis_client(fake.endpoint_url) as client:
        for name in (STREAM, COPY, BACK):
            fake.model.create(name, shards=4, distribution="AUTO")
        create_stream(client, DEAD)
        yield StreamUnderTest(client, fake.endpoint_url, zookeeper, clock), fake.model


@pytest.mark.spark
def test_records_without_keys_come_through_a_query_a_batch_read_the_sink_and_a_redrive(
    spark: SparkSession, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """They block nothing. Under block_key, a failing record without a key holds no other one back,
    in the middle of a split. Their nulls arrive everywhere, the sink gives them keys of its own.
    Each shard keeps its order, and a child comes after its parent.
    """
    with auto_streams(zookeeper_chroot) as (stream, model):
        check_records_without_keys(AllWays(spark, stream, tmp_path), stream, model)
        ProcessServices.forget_all()


def check_records_without_keys(
    ways: AllWays, stream: StreamUnderTest, model: FakeKinesis, records: int = 300
) -> None:
    keys = {b"record %d" % n: "same" if n % 3 == 0 else None for n in range(records)}
    for n, (data, key) in enumerate(keys.items()):
        model.put(STREAM, key, data)
        if n == records // 2:
            stream.split()
    by_digest = {digests([data])[0]: key for data, key in keys.items()}
    payloads = list(keys)
    bad, late = digests(payloads[1:1000:100]), digests(payloads[2:1000:100])
    bad = [one for one in bad if by_digest[one] is None]
    late = [one for one in late if by_digest[one] is None]
    processed, batch, redriven = ways.run(
        bad=bad, late=late, tracking={"on_failure": "block_key"}, sink={}
    )
    assert Counter(tuple(row[:3]) for row in processed) == Counter(
        (one, key, 2 if one in late else 1) for one, key in by_digest.items() if one not in bad
    )
    tried: dict[str, list[str]] = {}
    batches: dict[str, set[int]] = {}
    for digest, _, attempt, shard, number in processed:
        if attempt == 1:
            tried.setdefault(shard, []).append(digest)
            batches.setdefault(shard, set()).add(number)
    shards = model.stream(STREAM).shards
    assert tried == {
        shard: [one for one in map(digest_of, kept.records) if one not in {*bad, *late}]
        for shard, kept in shards.items()
    }
    assert {len(one) for one in batches.values()} == {1}  # nothing waited for a failed record
    parents = [(batches[one], batches[shard]) for shard in shards for one in shards[shard].parents]
    assert len(parents) == 2
    assert all(max(before) < min(after) for before, after in parents)
    assert {(digest, key) for digest, key, _ in batch} == set(by_digest.items())
    assert len(batch) == records
    copied = records_on(stream.client, COPY)
    assert digests(one["Data"] for one in copied) == sorted(by_digest)
    given = {one["PartitionKey"] for one in copied if keys[one["Data"]] is None}
    assert all(one["PartitionKey"] == "same" for one in copied if keys[one["Data"]])
    assert "same" not in given
    assert {len(key) for key in given} == {16}
    letters = [json.loads(one["Data"]) for one in records_on(stream.client, DEAD)]
    assert {(one["partitionKey"], one["attempts"]) for one in letters} == {(None, 3)}
    assert redriven == len(letters) == len(bad) > 0
    back = records_on(stream.client, BACK)
    assert digests(one["Data"] for one in back) == sorted(bad)
    # Of a letter without a key, the message id takes its place.
    assert {one["PartitionKey"] for one in back} == {one["messageId"] for one in letters}
    states = stream.states()
    assert not any(state.unresolved for state in states.values())
    assert sum(state.checkpoint_text == "SHARD_END" for state in states.values()) == 1


def test_the_sink_keeps_no_order_on_such_a_stream(auto: ServedFake) -> None:
    options = {"streamName": STREAM, "ordering": "key", **options_of(auto.endpoint_url)}
    source = RegisteredSource(options)
    with pytest.raises(ConfigError, match=f"option ordering is key, but stream {STREAM} has"):
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
    """Also the line of a record of 10 MiB, in base64."""
    auto.model.put(STREAM, KEY, largest(0))
    auto.model.create("copy", shards=2, distribution="AUTO", max_record_kib=10_240)
    consumed = run(auto, "consume", STREAM, "--from", "TRIM_HORIZON", "--until", "now")
    lines = lines_of(consumed.stdout)
    assert sorted(line["data"] for line in lines if "key" not in line) == sorted(
        data.decode() for data, key in EXPECTED if key is None
    )
    (large,) = (line["dataBase64"] for line in lines if "dataBase64" in line)
    assert digests([b64decode(large)]) == digests([largest(0)])
    put = run(auto, "produce", "copy", "--json", stdin=consumed.stdout.encode())
    assert put.stderr == "put 13 records on stream copy\n"
    assert digests(data for data, _ in on(auto, "copy")) == digests(data for data, _ in on(auto))
