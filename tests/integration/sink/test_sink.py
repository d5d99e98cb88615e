"""Writes to a stream: the writer of a task on a service that refuses, fails, and enforces its
limits, and the sink as Spark calls it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from botocore.loaders import create_loader
from pyspark.sql.types import StructType

from kinesis_spout.errors import AccessDeniedError, ConfigError, KinesisError, ThrottledError
from kinesis_spout.testing import FakeKinesisSettings, ManualClock, drop, replace
from kinesis_spout.testing.service.answers import PutRecordsAnswer, PutRecordsEntryAnswer
from spark_job import register
from spark_job.registration import RegisteredSource
from spark_job.sink.record_writer import PutCounts, RecordWriter
from spark_job.sink.sink_rows import SinkColumns, UnwritableRecordError
from spark_job.sink.sink_settings import SinkSettings
from tests.support.aggregates.delivered import delivered
from tests.support.aggregates.wire import aggregate_of
from tests.support.kinesis.refused_records import refuse
from tests.support.kinesis.services import (
    SECRET_KEY,
    create_stream,
    kinesis_client,
    options_of,
    records_on,
    serve,
)
from tests.support.spark.source import STREAM, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.testing import FakeKinesis, Fault
    from kinesis_spout.testing.service.requests import PutRecords

ACCEPTED = "accepted"
POINT = "X'0101000000000000000000F03F0000000000000040'"
KEYED = SinkColumns(0, 1, None, None)


def batch(numbers: range, *, keys: int = 50, size: int = 0) -> pa.RecordBatch:
    """Payloads are numbers, after as many spaces as make them this long."""
    return pa.record_batch(
        {
            "data": [b"%*d" % (size, number) for number in numbers],
            "partitionKey": [f"key {number % keys}" for number in numbers],
        }
    )


def settings(endpoint_url: str, **changes: str) -> SinkSettings:
    return SinkSettings.from_options({"streamName": STREAM} | options_of(endpoint_url) | changes)


def write(to: SinkSettings, *batches: pa.RecordBatch, columns: SinkColumns = KEYED) -> PutCounts:
    with closing(RecordWriter(to, columns)) as writer:
        return writer.write(iter(batches))


def on_stream(client: Any, name: str = STREAM) -> list[tuple[str, bytes]]:
    """Key and data of every record, shard by shard, in the order of the shard."""
    return [(one["PartitionKey"], one["Data"]) for one in records_on(client, name)]


@pytest.fixture
def served() -> Iterator[tuple[str, FakeKinesis, Any]]:
    with serve() as fake, kinesis_client(fake.endpoint_url) as client:
        create_stream(client, STREAM, shards=4)
        yield fake.endpoint_url, fake.model, client


def numbers(records: list[tuple[str, bytes]]) -> list[int]:
    return sorted(int(data) for _, data in records)


def is_in_order(records: list[tuple[str, bytes]]) -> bool:
    """Whether the numbers of each key rise."""
    by_key = defaultdict(list)
    for key, data in records:
        by_key[key].append(int(data))
    return all(found == sorted(found) for found in by_key.values())


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_a_write_within_the_services_limits_ends_and_is_not_fought(ordering: str) -> None:
    """Two shards that take 1,000 records a second each: of 2,500 records few are refused twice.
    With an order by key, each key's rows are on the stream in their order. Time passes while the
    writer waits, and only then: a slow machine would stay within the limits.
    """
    clock = ManualClock()
    with (
        serve(settings=FakeKinesisSettings(limits=True), clock=clock) as fake,
        kinesis_client(fake.endpoint_url) as client,
    ):
        create_stream(client, STREAM, shards=2)
        to = settings(fake.endpoint_url, ordering=ordering)
        with closing(RecordWriter(to, KEYED, clock=clock)) as writer:
            counts = writer.write(iter([batch(range(2_500), keys=400)]))
        clock.advance(1)
        records = on_stream(client)
    assert numbers(records) == list(range(2_500))
    assert 0 < counts.retries < 2_500
    assert ordering == "none" or is_in_order(records)


def partly(
    fake: FakeKinesis, codes: list[str], seed: int, times: int | None, *, share: float = 0.1
) -> Fault:
    """Each request is accepted in part, and from its last record to its first: PutRecords promises
    no order. A `share` of the records is refused, but no first one. Stream `ACCEPTED` has what was
    accepted, since a fault replaces only the answer.
    """
    random = Random(seed)  # noqa: S311  # the same in every run
    refusing = count() if times is None else iter(range(times))

    def answer(request: PutRecords) -> PutRecordsAnswer:
        entries = request.records or []
        refuses = next(refusing, None) is not None
        answers = []
        for index, entry in reversed(list(enumerate(entries))):
            if refuses and index and random.random() < share:
                answers.append(PutRecordsEntryAnswer(error_code=random.choice(codes)))
                continue
            place = fake.put(ACCEPTED, entry.partition_key, entry.data or b"")
            shard_id, _, number = place.partition(":")
            answers.append(PutRecordsEntryAnswer(shard_id=shard_id, sequence_number=number))
        failed = sum(one.error_code is not None for one in answers)
        return PutRecordsAnswer(failed, answers[::-1])

    return replace(answer)


@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize(
    ("codes", "times"),
    [
        (["InternalFailure"], 3),
        (["InternalFailure", "ProvisionedThroughputExceededException"], None),
    ],
)
def test_requests_that_are_accepted_in_part_lose_and_double_nothing(
    served: tuple[str, FakeKinesis, Any], ordering: str, codes: list[str], times: int | None
) -> None:
    """And keep the order of each key, if asked for. `times`: after so many, all is accepted."""
    url, fake, client = served
    create_stream(client, ACCEPTED, shards=4)
    fake.faults.add(partly(fake, codes, seed=7, times=times), operation="PutRecords", times=None)
    parts = [range(600), range(600, 1_200)]
    with closing(RecordWriter(settings(url, ordering=ordering), KEYED)) as writer:
        counts = writer.write([batch(part, keys=350) for part in parts])
    records = on_stream(client, ACCEPTED)
    assert numbers(records) == list(range(1_200))
    assert counts.records == 1_200
    assert counts.retries > 0
    assert counts.size_bytes == sum(len(key) + len(data) for key, data in records)
    assert ordering == "none" or is_in_order(records)


def test_a_lost_answer_puts_a_request_twice_and_loses_nothing(
    served: tuple[str, FakeKinesis, Any],
) -> None:
    url, fake, client = served
    fake.faults.add(drop(processed=True), operation="PutRecords")
    write(settings(url), batch(range(100)))
    found = numbers(on_stream(client))
    assert set(found) == set(range(100))
    assert len(found) == 200


def test_rows_name_their_streams_where_no_option_does(
    served: tuple[str, FakeKinesis, Any],
) -> None:
    url, _, client = served
    create_stream(client, "other", shards=1)
    rows = pa.record_batch({"data": [b"1", b"2", b"3"], "streamName": [STREAM, "other", STREAM]})
    to = SinkSettings.from_options(options_of(url))
    write(to, rows, columns=SinkColumns(0, None, None, 1))
    assert numbers(on_stream(client)) == [1, 3]
    assert numbers(on_stream(client, "other")) == [2]


@pytest.mark.parametrize("name", ["two words", "", "arn:aws:s3:::bucket"])
def test_a_bad_stream_name_of_a_row_is_said_of_the_column(
    served: tuple[str, FakeKinesis, Any], name: str
) -> None:
    """No option has it."""
    rows = pa.record_batch({"data": [b"1"], "streamName": [name]})
    to = SinkSettings.from_options(options_of(served[0]))
    with pytest.raises(ConfigError, match=f"^column streamName: '{name}' is not "):
        write(to, rows, columns=SinkColumns(0, None, None, 1))


def test_nothing_of_a_batch_with_an_unwritable_row_is_put(
    served: tuple[str, FakeKinesis, Any],
) -> None:
    """The stream's own maximum record size counts: 1 MiB unless it was raised."""
    url, _, client = served
    rows = pa.record_batch({"data": [b"1", b"x" * (1024 * 1024)], "partitionKey": ["a", "b"]})
    with pytest.raises(UnwritableRecordError, match=r"row 2.*1048576 bytes"):
        write(settings(url), rows)
    assert on_stream(client) == []


@pytest.mark.parametrize(
    ("code", "raised", "says", "lasts_s"),
    [
        ("ProvisionedThroughputExceededException", ThrottledError, "add shards to the stream", 3),
        ("KMSDisabledException", AccessDeniedError, "KMS key", 0),
    ],
)
def test_a_refusal_that_lasts_for_too_long_or_that_no_repetition_mends_ends_the_write(
    served: tuple[str, FakeKinesis, Any],
    code: str,
    raised: type[KinesisError],
    says: str,
    lasts_s: int,
) -> None:
    """At once, if nothing mends it. Time passes only while the writer waits."""
    url, fake, _ = served
    clock = ManualClock()
    begun_s = clock.monotonic_s()
    fake.faults.add(refuse(0, code), operation="PutRecords", times=None)
    with closing(RecordWriter(settings(url, retryFor="3s"), KEYED, clock=clock)) as writer:
        with pytest.raises(raised, match=says):
            writer.write([batch(range(1))])
        assert (writer.counts.requests > 1) is (lasts_s > 0)
    assert lasts_s <= clock.monotonic_s() - begun_s <= 3 * lasts_s


# aggregates ---------------------------------------------------------------------------------------
def test_an_explicit_hash_key_chooses_the_shard_of_an_aggregate(
    served: tuple[str, FakeKinesis, Any],
) -> None:
    url, fake, client = served
    rows = pa.record_batch(
        {"data": [b"1", b"2", b"3"], "key": ["a", "b", "c"], "hash": ["0", "1", str(2**128 - 1)]}
    )
    write(settings(url, aggregate="true"), rows, columns=SinkColumns(0, 1, 2, None))
    assert numbers(delivered(fake, STREAM)) == [1, 2, 3]
    assert [key for key, _ in on_stream(client)] == ["a", "c"]


def nested(numbers: range, size_bytes: int = 0) -> pa.RecordBatch:
    """Rows whose data is an aggregate, of user records that belong to any shard."""
    users = [f"user {number}" for number in range(9)]
    rows = batch(numbers, keys=500)
    data = [
        aggregate_of([*(b"%d" % number for _ in users), bytes(size_bytes)], users)
        for number in numbers
    ]
    return rows.set_column(0, "data", pa.array(data, pa.binary()))


def pairs(rows: pa.RecordBatch) -> set[tuple[str, bytes]]:
    return {(row["partitionKey"], row["data"]) for row in rows.to_pylist()}


@pytest.mark.parametrize("made", [batch, nested], ids=["plain", "aggregates"])
def test_rows_that_a_reshard_misplaced_are_put_again_as_what_they_are(
    served: tuple[str, FakeKinesis, Any], made: Callable[[range], pa.RecordBatch]
) -> None:
    """No row is missing for readers that leave out what belongs to another shard. Rows that are
    aggregates stay so, also where they are too large to be packed with others, or are alone: as
    records of their own they would be unpacked, and be left out in part.
    """
    url, fake, client = served
    first = client.list_shards(StreamName=STREAM)["Shards"][0]["ShardId"]
    parts = made(range(1_000)), made(range(1_000, 2_000)), nested(range(2_000, 2_003), 60_000)

    def batches() -> Iterator[pa.RecordBatch]:
        yield parts[0]
        fake.split(STREAM, first)  # of what is packed for it nothing is put yet
        yield from parts[1:]

    with closing(RecordWriter(settings(url, aggregate="true"), KEYED)) as writer:
        counts = writer.write(batches())
    assert set(delivered(fake, STREAM)) == set().union(*map(pairs, parts))
    assert counts.records == 2_003
    assert counts.retries > 0


def test_a_row_that_does_not_fit_into_an_aggregate_of_its_own_is_refused(
    served: tuple[str, FakeKinesis, Any],
) -> None:
    """It is an aggregate itself, and as large as the stream's records may be."""
    url, fake, _ = served
    most = fake.stream(STREAM).max_record_bytes
    key = "key 0"
    size = most - len(key.encode()) - len(aggregate_of([b""])) - 16
    row = pa.record_batch({"data": [aggregate_of([bytes(size)])], "partitionKey": [key]})
    write(settings(url), row)
    with pytest.raises(UnwritableRecordError, match="a row is itself an aggregate"):
        write(settings(url, aggregate="true"), row)


@pytest.mark.parametrize("description", ["as installed", "of an old boto3"])
def test_aggregates_are_refused_for_a_stream_that_ignores_keys(
    description: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is put, and whether the botocore knows of record distribution or not."""
    if description == "of an old boto3":
        describe_without_record_distribution(tmp_path)
        monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    with serve() as fake:
        fake.model.create(STREAM, shards=2, distribution="AUTO")
        with pytest.raises(ConfigError, match="option aggregate is true, but stream orders"):
            write(settings(fake.endpoint_url, aggregate="true"), batch(range(2)))
        assert not any(shard.records for shard in fake.model.stream(STREAM).shards.values())


def describe_without_record_distribution(folder: Path) -> None:
    """Write a description of the service from before it had that, for botocore to find."""
    service = create_loader().load_service_model("kinesis", "service-2")
    members = service["shapes"]["StreamDescriptionSummary"]["members"]
    for name in ("RecordDistributionStrategy", "MaxRecordSizeInKiB"):
        members.pop(name, None)
    path = folder / "kinesis" / service["metadata"]["apiVersion"] / "service-2.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(service))


def keys_on(stream: StreamUnderTest, name: str = STREAM) -> dict[bytes, str]:
    """The partition key of every record, by its data."""
    return {one["Data"]: one["PartitionKey"] for one in records_on(stream.client, name)}


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "id", "to_json(struct(id)) AS data", "CAST(id AS STRING) AS partitionKey"
    )


@pytest.mark.spark
def test_a_frame_is_written_to_a_stream_in_aggregates_too_and_is_read_as_it_was(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    """Ten thousand rows, in few Kinesis records."""
    register(spark)
    rows(spark, 1500).write.format("kinesis").options(**stream.connection()).mode("append").save()
    assert keys_on(stream) == {b'{"id":%d}' % number: str(number) for number in range(1500)}
    create_stream(stream.client, "packed", shards=4)
    frame = spark.range(10_000).selectExpr(
        "concat('key ', id % 700) AS partitionKey", "repeat(cast(id AS STRING), id % 40) AS data"
    )
    to = stream.connection(streamName="packed")
    frame.write.format("kinesis").options(**to, aggregate="true").mode("append").save()
    assert len(keys_on(stream, "packed")) < 200
    pace = {"readsPerSecond": "1000", "readBytesPerSecond": "1GiB"}
    stream.clock.advance(60)
    found = spark.read.format("kinesis").options(**to, **pace).load()
    read = found.selectExpr("partitionKey", "CAST(data AS STRING)").collect()
    assert sorted(map(tuple, read)) == sorted(
        (f"key {number % 700}", str(number) * (number % 40)) for number in range(10_000)
    )


@pytest.mark.spark
def test_a_write_that_cannot_work_is_sparks_error_with_our_sentence_and_puts_nothing(
    spark: SparkSession, stream: StreamUnderTest
) -> None:
    register(spark)
    for columns, message in (
        (["id AS data"], "column data has the type bigint"),
        (["repeat('x', 1100000) AS data"], "row 1 of a batch.*1048576 bytes"),
        ([f"st_geomfromwkb({POINT}) AS data"], "column data has the type geometry"),
    ):
        writer = spark.range(1).selectExpr(*columns).write.format("kinesis")
        with pytest.raises(Exception, match=message) as caught:
            writer.options(**stream.connection()).mode("append").save()
        assert not isinstance(caught.value, KinesisError)
        assert SECRET_KEY not in str(caught.value)
    assert keys_on(stream) == {}


@pytest.mark.parametrize(
    ("more", "overwrite", "message"),
    [
        ({"streamName": "absent"}, False, "check the stream's name"),
        ({"ordering": "all"}, False, "use none or key"),
        ({}, True, r"a Kinesis stream cannot be overwritten; use mode\(\"append\"\)"),
    ],
)
def test_a_write_that_cannot_work_is_refused_before_a_task_begins(
    stream: StreamUnderTest, more: dict[str, str], *, overwrite: bool, message: str
) -> None:
    """In a batch and in a query."""
    source = RegisteredSource(stream.connection(**more))
    schema = StructType().add("data", "string")
    for writer in (source.writer, source.streamWriter):
        with pytest.raises(KinesisError, match=message):
            writer(schema, overwrite)
