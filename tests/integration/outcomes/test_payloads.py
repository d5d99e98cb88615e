"""Payloads as they are found on Kinesis, on the emulator, with moto as the schema registry: one
query with many kinds of record, good, damaged and hostile ones, through retry and dead letter; the
same stream in a batch read and in the spout.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from aws_schema_registry.avro import AvroSchema
from aws_schema_registry.codec import encode
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.config import AwsConfig
from kinesis_spout.service.glue_registry import GlueRegistry
from kinesis_spout.spout import KinesisSpout, SpoutConfig
from scheme import (
    AvroScheme,
    CloudWatchLogsScheme,
    Compressed,
    DynamoDbScheme,
    GlueScheme,
    JsonScheme,
    ProtobufScheme,
    RawScheme,
    parsed,
)
from scheme.avro_scheme import NOT_AVRO
from scheme.avro_types import OUT_OF_RANGE
from scheme.cloudwatch_logs import NOT_CLOUDWATCH
from scheme.compressed import TOO_LARGE, UNKNOWN_CODEC
from scheme.dynamodb import NOT_A_CHANGE, NOT_AN_ATTRIBUTE
from scheme.glue_scheme import (
    CUT_OFF,
    NO_FRAME,
    OTHER_FORMAT,
    OTHER_MESSAGE,
    UNKNOWN_VERSION,
    UNUSABLE,
)
from scheme.protobuf_scheme import NOT_PROTOBUF, TOO_DEEP
from scheme.protobuf_scheme import OUT_OF_RANGE as NO_TIMESTAMP
from spark_job import register
from spark_job.process_services import ProcessServices
from state.retry_policy import RetryPolicy
from tests.support.kinesis.services import create_stream, fields_of, kinesis_client
from tests.support.outcomes.avro_cases import EMPTY, GOOD, ORDER, ORDER_BYTES, written
from tests.support.outcomes.glue_cases import (
    AWS,
    BOMB,
    LIST,
    OLD,
    OLD_PROTO,
    ORDER_1,
    ORDER_2,
    Producer,
    nowhere,
)
from tests.support.outcomes.payload_cases import CONTROL, change, cloudwatch, gzipped, nested, zstd
from tests.support.outcomes.protobuf_cases import FULL, Old, Order
from tests.support.outcomes.scheme_agreement import decoded, record_of
from tests.support.outcomes.scheme_cases import Readings
from tests.support.outcomes.tracked import TrackedBatches, TrackedQuery
from tests.support.spark.source import STREAM, ShiftedClock, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.dead_letter.letter import Letter
    from scheme import RecordScheme
    from spark_job import TrackedBatch

pytestmark = [pytest.mark.spark, pytest.mark.emulator]

MIB = 1024 * 1024
NOT_GZIP = "the gzip data is damaged, cut off or followed by other data"


class Kind:
    """Records of one format, under a partition key of their own. `late`: a condition on a row that
    is true for a record of `good`, which fails at its first delivery. `bad`: with their reasons.
    """

    def __init__(
        self,
        scheme: RecordScheme,
        shown: str,
        late: str,
        good: dict[bytes, list[Any]],
        bad: dict[bytes, str],
    ) -> None:
        self.scheme, self.shown, self.late, self.good, self.bad = scheme, shown, late, good, bad


PLAIN = {
    "logs": Kind(
        CloudWatchLogsScheme(),
        "parsed.value.message",
        "parsed.value.message = 'late'",
        good={
            cloudwatch("a", '{"b": 1}'): ["a", '{"b": 1}'],
            cloudwatch("c", "late", "d"): ["c", "late", "d"],
            CONTROL: [],
            cloudwatch(): [],
        },
        bad={
            cloudwatch("x")[:-1]: NOT_GZIP,
            cloudwatch(logEvents=[{"id": "0", "timestamp": 0, "message": "y"}, {}]): NOT_CLOUDWATCH,
            gzipped(bytes(50 * MIB)): TOO_LARGE,
            gzipped(b"[" * MIB): NOT_CLOUDWATCH,
        },
    ),
    "changes": Kind(
        DynamoDbScheme("id STRING NOT NULL, total DECIMAL(38,2)"),
        "CAST(parsed.value.newImage.total AS STRING)",
        "parsed.value.keys.id = 'late'",
        good={
            change({"id": {"S": "a"}, "total": {"N": "9" * 36 + ".25"}}): ["9" * 36 + ".25"],
            change({"id": {"S": "late"}, "total": {"N": "1"}}): ["1.00"],
        },
        bad={
            b"{}": NOT_A_CHANGE,
            change({"id": {"S": "a"}, "total": {"N": "0.001"}}): (
                "field 'newImage.total' is not a DECIMAL(38,2)"
            ),
            change({"id": {"S": "a"}, "total": nested(40)}): NOT_AN_ATTRIBUTE,
            b'{"dynamodb":' * 50_000: NOT_A_CHANGE,
        },
    ),
    "clicks": Kind(
        Compressed(JsonScheme("id BIGINT NOT NULL")),
        "parsed.value.id",
        "parsed.value.id = 2",
        good={gzipped(b'{"id": 1}'): [1], zstd(b'{"id": 2}'): [2]},
        bad={
            b'{"id": 3}': UNKNOWN_CODEC,
            gzipped(b'{"id": "3"}'): "field 'id' is not a BIGINT",
            zstd(bytes(50 * MIB)): TOO_LARGE,
        },
    ),
    "orders": Kind(
        AvroScheme(ORDER),
        "parsed.value.customer",
        "parsed.value.customer = 'late'",
        good={
            ORDER_BYTES: [GOOD["customer"]],
            written(ORDER, EMPTY | {"customer": "late"}): ["late"],
        },
        bad={
            ORDER_BYTES[:-1]: NOT_AVRO,
            ORDER_BYTES + b"\x00": NOT_AVRO,
            written(
                ORDER
                | {
                    "fields": [
                        field | {"type": "long"} if field["name"] == "placed" else field
                        for field in ORDER["fields"]
                    ]
                },
                EMPTY | {"placed": 1 << 60},
            ): OUT_OF_RANGE,
            # A count of items that would take all memory.
            ORDER_BYTES[:-30] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" * 9: NOT_AVRO,
            b"\x80" * 500_000: NOT_AVRO,
        },
    ),
    "messages": Kind(
        ProtobufScheme(Order, recursion_depth=1),
        "parsed.value.i32",
        "parsed.value.i32 = 2",
        good={FULL: [-5], Order(i32=2).SerializeToString(): [2]},
        bad={
            FULL[:-1]: NOT_PROTOBUF,
            Order(at={"seconds": 1 << 45}).SerializeToString(): NO_TIMESTAMP,
            Order(tree={"more": [{"more": [{}]}]}).SerializeToString(): TOO_DEEP,
            b"\x0b" * 500_000: NOT_PROTOBUF,
        },
    ),
    "meters": Kind(
        Readings(),
        "parsed.value.reading",
        "parsed.value.name = 'late'",
        good={b"a=1\nb=2": [1, 2], b"late=3": [3]},
        bad={b"a=1\nb": "a line has no equals sign", b"a=x": "the scheme raised ValueError"},
    ),
}


def framed(producer: Producer, registry: GlueRegistry) -> dict[str, Kind]:
    """Records whose schemas the producer has registered: of two versions, and in three formats."""
    first = producer.version("orders", "AVRO", json.dumps(ORDER_1))
    newest = producer.version("orders", "AVRO", json.dumps(ORDER_2))
    chain = producer.version("chains", "AVRO", json.dumps(LIST))
    proto = producer.version("old", "PROTOBUF", OLD_PROTO)
    click = producer.version("clicks", "JSON", '{"type": "object"}')

    def order(number: int) -> bytes:
        return written(ORDER_1, {"id": number, "note": "x"})

    return {
        "framed": Kind(
            GlueScheme(AvroScheme(ORDER_2), registry),
            "parsed.value.id",
            "parsed.value.id = 2",
            good={
                producer.record("orders", {"id": 1, "note": "x"}, AvroSchema(ORDER_1)): [1],
                encode(written(ORDER_2, {"id": 2, "total": 0.5}), newest, compression="ZLIB"): [2],
            },
            bad={
                order(1): NO_FRAME,
                encode(b"", first)[:17]: CUT_OFF,
                encode(order(1), first)[:-1]: NOT_AVRO,
                encode(order(1), UUID(int=99)): UNKNOWN_VERSION,
                encode(order(1), chain): UNUSABLE,
                encode(b"{}", click): OTHER_FORMAT,
                b"\x03\x05" + first.bytes + BOMB: TOO_LARGE,
                encode(b"\x80" * 500_000, newest): NOT_AVRO,
            },
        ),
        "framed or not": Kind(
            GlueScheme(AvroScheme(ORDER_1), registry, unframed="raw"),
            "parsed.value.id",
            "parsed.value.id = 3",
            good={encode(order(2), first): [2], order(3): [3]},
            bad={b"\x03\x00": CUT_OFF, order(3)[:-1]: NOT_AVRO},
        ),
        "framed clicks": Kind(
            GlueScheme(JsonScheme("id BIGINT NOT NULL"), registry),
            "parsed.value.id",
            "parsed.value.id = 2",
            good={encode(b'{"id": 1}', click): [1], encode(b'{"id": 2}', click): [2]},
            bad={encode(b'{"id": "3"}', click): "field 'id' is not a BIGINT"},
        ),
        "framed messages": Kind(
            GlueScheme(ProtobufScheme(Old), registry),
            "parsed.value.id",
            "parsed.value.id = 4",
            good={
                encode(b"\x01" + OLD, proto): [3],
                encode(b"\x01" + Old(id=4).SerializeToString(), proto): [4],
            },
            bad={
                encode(b"\x00" + OLD, proto): OTHER_MESSAGE,
                encode(b"\x01" + b"\x0b" * 500_000, proto): NOT_PROTOBUF,
            },
        ),
    }


@pytest.fixture(scope="module")
def kinds(moto_endpoint: str) -> dict[str, Kind]:
    producer = Producer(moto_endpoint)
    registry = GlueRegistry(aws=AWS, endpoint_url=moto_endpoint, registry_name=producer.name)
    return PLAIN | framed(producer, registry)


def rows_of(kind: Kind) -> list[Any]:
    return [row for rows in kind.good.values() for row in rows]


@pytest.fixture
def emulated(
    emulator_endpoint: str, zookeeper_chroot: str, kinds: dict[str, Kind]
) -> Iterator[StreamUnderTest]:
    with kinesis_client(emulator_endpoint) as client:
        create_stream(client, STREAM, shards=2)
        try:
            stream = StreamUnderTest(client, emulator_endpoint, zookeeper_chroot, ShiftedClock())
            for name, kind in kinds.items():
                for data in [*kind.good, *kind.bad]:
                    stream.put_record(name, data)
            yield stream
        finally:
            ProcessServices.forget_all()
            client.delete_stream(StreamName=STREAM)


def test_each_record_of_each_format_has_its_outcome(
    spark: SparkSession, emulated: StreamUnderTest, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """Good ones are processed once, also one that fails at first, with all of its rows; one without
    rows is acked; malformed ones are dead letters, named with their reason. Nothing is left over.
    """
    query = TrackedQuery(spark, emulated, tmp_path / "checkpoint")
    found: dict[str, list[Any]] = defaultdict(list)

    def process(batch: TrackedBatch) -> None:
        for name, kind in kinds.items():
            records = batch.df.where(F.col("partitionKey") == name)
            rows = parsed(records, kind.scheme)
            good = batch.fail_where(rows, f"attempt = 1 AND {kind.late}", "not now")
            found[name] += [
                row.shown for row in good.selectExpr(f"{kind.shown} AS shown").collect()
            ]

    query.run(process)
    assert {name: sorted(rows, key=repr) for name, rows in found.items()} == {
        name: sorted(rows_of(kind), key=repr) for name, kind in kinds.items()
    }
    reasons = {data: reason for kind in kinds.values() for data, reason in kind.bad.items()}
    assert {letter.data: letter.reason for letter in query.letters} == reasons
    assert len(query.letters) == len(reasons)
    assert {letter.message_id.rpartition(":")[0] for letter in query.letters} <= emulated.ids()
    assert query.unresolved() == {}
    assert emulated.checkpoints() == emulated.tips()


def test_a_batch_of_one_format_has_a_row_for_each_row(
    spark: SparkSession, emulated: StreamUnderTest, tmp_path: Path
) -> None:
    """`batch.parsed` rejects the records of other formats, and acks those without rows."""
    query = TrackedBatches(spark, emulated, tmp_path / "checkpoint")
    found: list[str] = []

    def process(batch: TrackedBatch) -> None:
        rows = batch.parsed(CloudWatchLogsScheme(), into="log").select("messageId", "log.*")
        found.extend(row.message for row in rows.collect())

    query.run(process)
    assert sorted(found) == sorted(rows_of(PLAIN["logs"]))
    good = PLAIN["logs"].good
    assert len(query.letters) == sum(map(len, emulated.records.values())) - len(good)
    assert not {letter.data for letter in query.letters} & good.keys()
    assert query.unresolved() == {}


@pytest.mark.parametrize(("name", "late"), [("logs", "late"), ("framed", 2)])
def test_the_source_decodes_where_it_has_a_scheme(
    spark: SparkSession,
    emulated: StreamUnderTest,
    kinds: dict[str, Kind],
    tmp_path: Path,
    *,
    name: str,
    late: object,
) -> None:
    """By the text of an option, many rows of a record; and by an object, with its registry. What
    it decodes is processed once with all of its rows, also where it fails at first; each other
    record, of any format, is a dead letter with its reason. A record is one row of the frame.
    """
    kind = kinds[name]
    query = TrackedQuery(spark, emulated, tmp_path / "checkpoint")
    column = kind.shown.rpartition(".")[2]
    found: list[Any] = []
    counts: list[int] = []

    def process(batch: TrackedBatch) -> None:
        counts.append(batch.df.count())
        is_late = F.col(f"parsed.{column}") == F.lit(late)
        good = batch.fail_where(batch.parsed(), (F.col("attempt") == 1) & is_late, "not now")
        found.extend(row.shown for row in good.selectExpr(f"parsed.{column} AS shown").collect())

    query.run(process, source={"scheme": "cloudwatch-logs" if name == "logs" else kind.scheme})
    outcomes = {
        data: decoded(kind.scheme, data)
        for each in kinds.values()
        for data in [*each.good, *each.bad]
    }
    place = kind.scheme.fields.index(column)
    rows = [
        [row[place] for row in (value if name == "logs" else [value])]
        for value, reason in outcomes.values()
        if reason is None
    ]
    assert sorted(found) == sorted(shown for of_record in rows for shown in of_record)
    assert sum(counts) == len(outcomes) + sum(late in of_record for of_record in rows)
    letters = {letter.data: letter.reason for letter in query.letters}
    assert letters == {data: reason for data, (_, reason) in outcomes.items() if reason}
    assert len(query.letters) == len(letters)
    assert query.unresolved() == {}
    assert emulated.checkpoints() == emulated.tips()


def test_a_plain_query_and_a_batch_read_have_the_decoded_column(
    spark: SparkSession, emulated: StreamUnderTest, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """With the rows and the reasons that `parsed` gives on a frame; also where only some columns
    are asked for, without the payload; and of a scheme for which Spark has expressions.
    """
    register(spark)
    reader = spark.read.format("kinesis").options(**emulated.connection())
    plain = reader.load()
    scheme = kinds["logs"].scheme
    expected = parsed(plain, scheme).select("messageId", "parsed").toArrow().to_pylist()

    def exploded(frame: DataFrame) -> list[Any]:
        rows = frame.select("messageId", F.explode("parsed").alias("parsed"))
        return sorted(rows.toArrow().to_pylist(), key=repr)

    whole = reader.option("scheme", "cloudwatch-logs").load()
    some = whole.select("messageId", "parsed").schema
    assert exploded(whole) == sorted(expected, key=repr)
    assert exploded(reader.schema(some).load()) == sorted(expected, key=repr)
    for name, one in {"clicks": kinds["clicks"].scheme, "raw": RawScheme()}.items():
        rows: list[Any] = []
        TrackedQuery(spark, emulated, tmp_path / name).play(
            emulated.source(scheme=one, application=name), partial(_collect, rows)
        )
        by_spark = parsed(plain, one).select("messageId", "parsed").toArrow().to_pylist()
        assert sorted(rows, key=repr) == sorted(by_spark, key=repr)


def _collect(rows: list[Any], frame: DataFrame, _: int) -> None:
    rows.extend(frame.select("messageId", "parsed").toArrow().to_pylist())


def test_an_unreachable_registry_stops_the_query_and_its_records_are_read_again(
    spark: SparkSession, emulated: StreamUnderTest, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """No record of the batch is acked, malformed or has used up an attempt by the outage. The error
    says which registry.
    """
    kind, url = kinds["framed"], nowhere()
    assert isinstance(kind.scheme, GlueScheme)
    assert isinstance(kind.scheme.registry, GlueRegistry)
    lost = replace(
        kind.scheme, registry=replace(kind.scheme.registry, endpoint_url=url, attempts=1)
    )
    query = TrackedQuery(spark, emulated, tmp_path / "checkpoint")
    found: list[Any] = []

    def process(batch: TrackedBatch, scheme: RecordScheme) -> None:
        records = batch.df.where(F.col("partitionKey") == "framed")
        good = batch.fail_where(parsed(records, scheme), "false", "never")
        found.extend(map(tuple, good.select("parsed.value.id", "attempt").collect()))

    with pytest.raises(Exception, match="SchemeUnavailableError") as caught:
        query.run(lambda batch: process(batch, lost))
    assert f"Glue Schema Registry at {url}" in str(caught.value)
    assert (found, query.letters) == ([], [])
    assert not emulated.checkpoints()
    query.run(lambda batch: process(batch, kind.scheme))
    assert sorted(found) == [(1, 1), (2, 1)]
    assert {letter.data: letter.reason for letter in query.letters} == kind.bad
    assert {letter.attempts for letter in query.letters} == {1}
    assert query.unresolved() == {}
    assert emulated.checkpoints() == emulated.tips()


def test_a_batch_read_gives_the_same_rows(
    spark: SparkSession, emulated: StreamUnderTest, kinds: dict[str, Kind]
) -> None:
    register(spark)
    frame = spark.read.format("kinesis").options(**emulated.connection()).load().cache()
    for name, kind in kinds.items():
        rows = parsed(frame.where(F.col("partitionKey") == name), kind.scheme)
        found = rows.selectExpr("data", "parsed.malformed", f"{kind.shown} AS shown").collect()
        good = [row.shown for row in found if row.malformed is None]
        assert sorted(good, key=repr) == sorted(rows_of(kind), key=repr)
        assert {bytes(row.data): row.malformed for row in found if row.malformed} == kind.bad


def test_the_spout_emits_a_record_with_its_rows(
    emulated: StreamUnderTest, kinds: dict[str, Kind]
) -> None:
    """One emission for each record, acked or failed as a whole, and emitted again when it failed;
    malformed records go to the dead letters without being emitted.
    """
    for name, kind in kinds.items():
        letters: list[Letter] = []
        config = SpoutConfig(
            stream=STREAM,
            aws=AwsConfig(**fields_of(emulated.endpoint_url)),
            starting_position="TRIM_HORIZON",
            until="now",
            scheme=kind.scheme,
            retry=RetryPolicy(first_delay_ms=10),
            dead_letter=letters.append,
        )
        found = []
        with KinesisSpout(config) as spout:
            for emission in spout.emissions(lambda: False):
                if emission.attempt == 1:
                    emission.fail("not now")
                    continue
                if emission.record.partition_key == name:
                    found.append(emission.values)
                emission.ack()
        expected = [kind.scheme.decode(record_of(data)) for data in kind.good]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        own = {letter.data: letter.reason for letter in letters if letter.partition_key == name}
        assert own == kind.bad
