"""Records of 10 MiB, the most that the service takes, on every way through the package."""

from __future__ import annotations

from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from spark_job.process_services import ProcessServices
from state.retry_policy import RetryPolicy
from tests.support.kinesis.large_records import (
    KEY,
    LARGEST,
    MIB,
    digests,
    largest,
    take_large_records,
)
from tests.support.shell.consuming import lines_of, run
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark import all_ways_through
from tests.support.spark.all_ways_checked import check_large_records, large_streams
from tests.support.spark.source import STREAM, StreamUnderTest
from tests.support.spout.spouts import spout_on

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kinesis_spout.testing import FakeKinesis
    from tests.support.kinesis.services import ServedFake


def payloads_on(fake: FakeKinesis, stream: str) -> list[bytes]:
    return [
        record.data
        for shard in fake.shards(stream)
        for record in fake.records(stream, shard.shard_id)
    ]


def test_the_source_delivers_them_in_order_and_replays_them_exactly(
    stream: StreamUnderTest,
) -> None:
    """Two of 10 MiB between small ones, in one shard, where a batch may have less than one of them:
    then it has one.
    """
    take_large_records(stream.client, STREAM)
    small = [b"small %d" % number for number in range(4)]
    large = [small[0], largest(0), small[1], small[2], largest(1), small[3]]
    for payload in large:
        stream.put_record(KEY, payload)
    engine = MicroBatchEngine(stream.settings(max_bytes_per_task="1MiB"))
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
    assert len(engine.sink) >= 4


@pytest.mark.spark
def test_they_come_through_a_query_a_batch_read_the_sink_and_a_redrive(
    spark: SparkSession, fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path
) -> None:
    with large_streams(fake_kinesis.endpoint_url, zookeeper_chroot) as stream:
        check_large_records(partial(all_ways_through.run, spark), stream, LARGEST, tmp_path)
        ProcessServices.forget_all()


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
