"""Payloads as they are found on Kinesis, on the emulator: one query with good and damaged payloads
of every scheme, as the contract has them, through retry and dead letter; the same stream in a batch
read and in the spout. And an outage of a schema registry, which moto plays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from aws_schema_registry.avro import AvroSchema
from aws_schema_registry.codec import encode
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.config import AwsConfig
from kinesis_spout.service.glue_registry import GlueRegistry
from scheme import AvroScheme, GlueScheme, parsed
from scheme.glue_scheme import NO_FRAME, UNKNOWN_VERSION
from scheme.record_scheme import gives_many
from spark_job import register
from state.retry_policy import RetryPolicy
from tests.support.kinesis.services import fields_of
from tests.support.outcomes.glue_cases import AWS, ORDER_1, ORDER_2, Producer, nowhere
from tests.support.outcomes.scheme_agreement import decoded, plain_row
from tests.support.outcomes.scheme_cases import CASES
from tests.support.outcomes.tracked import TrackedBatches, TrackedQuery
from tests.support.spark.source import STREAM, StreamUnderTest, stream_at
from tests.support.spout.spouts import spout_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kinesis_spout.dead_letter.letter import Letter
    from scheme import RecordScheme
    from spark_job import TrackedBatch
    from tests.support.outcomes.scheme_case import SchemeCase

pytestmark = [pytest.mark.spark, pytest.mark.emulator]

KINDS = {type(case.scheme): case for case in reversed(CASES)}.values()
"""The contract's first case of each scheme."""
SCHEMES = {case.name: case.scheme for case in CASES}
PAYLOADS = [data for case in KINDS for data in [*case.good, *case.damaged]]
BAD = {(case.name, data): reason for case in KINDS for data, reason in case.damaged.items()}
"""The reason of each damaged payload, by its case, which is its record's partition key."""


def rows_of(case: SchemeCase) -> list[str]:
    """The values of all good payloads, sorted."""
    values = case.good.values()
    rows = [row for value in values for row in (value if gives_many(case.scheme) else [value])]
    return sorted(repr(plain_row(row)) for row in rows)


def found_in(frame: DataFrame) -> list[str]:
    """The same of a frame of `parsed`."""
    rows = frame.select("parsed.value").where("value IS NOT NULL").toArrow().to_pylist()
    return sorted(repr(plain_row(row["value"].values())) for row in rows)


def of_case(frame: DataFrame, case: SchemeCase) -> DataFrame:
    return parsed(frame.where(F.col("partitionKey") == case.name), case.scheme)


@pytest.fixture
def empty(emulator_endpoint: str, zookeeper_chroot: str) -> Iterator[StreamUnderTest]:
    with stream_at(emulator_endpoint, zookeeper_chroot, shards=2) as made:
        yield made


@pytest.fixture
def emulated(empty: StreamUnderTest) -> StreamUnderTest:
    for case in KINDS:
        for data in [*case.good, *case.damaged]:
            empty.put_record(case.name, data)
    return empty


def reasons_in(letters: list[Letter]) -> dict[tuple[str | None, bytes | None], str | None]:
    return {(letter.partition_key, letter.data): letter.reason for letter in letters}


def test_each_record_of_each_format_has_its_outcome(
    spark: SparkSession, emulated: StreamUnderTest, tmp_path: Path
) -> None:
    """Good ones are processed once, also one that fails at first, with all of its rows; one without
    rows is acked; malformed ones are dead letters, named with their reason. Nothing is left over.
    """
    query = TrackedQuery(spark, emulated, tmp_path / "checkpoint")
    found: dict[str, list[str]] = defaultdict(list)

    def process(batch: TrackedBatch) -> None:
        for case in KINDS:
            late = next(data for data, value in case.good.items() if value)
            is_late = (F.col("attempt") == 1) & (F.col("data") == F.lit(bytearray(late)))
            found[case.name] += found_in(
                batch.fail_where(of_case(batch.df, case), is_late, "not now")
            )

    query.run(process)
    assert {name: sorted(rows) for name, rows in found.items()} == {
        case.name: rows_of(case) for case in KINDS
    }
    assert reasons_in(query.letters) == BAD
    assert len(query.letters) == len(BAD)
    assert {letter.message_id.rpartition(":")[0] for letter in query.letters} <= emulated.ids()
    assert query.unresolved() == {}
    assert emulated.checkpoints() == emulated.tips()


@pytest.mark.parametrize(("name", "column"), [("cloudwatch logs", "message"), ("glue avro", "id")])
def test_the_source_decodes_where_it_has_a_scheme(
    spark: SparkSession, emulated: StreamUnderTest, tmp_path: Path, name: str, column: str
) -> None:
    """By the text of an option, many rows of a record; and by an object, with its registry. What
    it decodes is processed once with all of its rows, also where it fails at first; each other
    record, of any format, is a dead letter with its reason. A record is one row of the frame.
    """
    scheme = SCHEMES[name]
    outcomes = [(data, *decoded(scheme, data)) for data in PAYLOADS]
    place = scheme.fields.index(column)
    rows = [
        [row[place] for row in (value if gives_many(scheme) else [value])]
        for _, value, reason in outcomes
        if reason is None
    ]
    late = next(of_record[0] for of_record in rows if of_record)
    query = TrackedQuery(spark, emulated, tmp_path / "checkpoint")
    found: list[Any] = []
    counts: list[int] = []

    def process(batch: TrackedBatch) -> None:
        counts.append(batch.df.count())
        is_late = (F.col("attempt") == 1) & (F.col(f"parsed.{column}") == F.lit(late))
        good = batch.fail_where(batch.parsed(), is_late, "not now")
        found.extend(row.shown for row in good.selectExpr(f"parsed.{column} AS shown").collect())

    query.run(process, source={"scheme": {"cloudwatch logs": "cloudwatch-logs"}.get(name, scheme)})
    assert sorted(found) == sorted(shown for of_record in rows for shown in of_record)
    assert sum(counts) == len(outcomes) + sum(late in of_record for of_record in rows)
    assert Counter((letter.data, letter.reason) for letter in query.letters) == Counter(
        (data, reason) for data, _, reason in outcomes if reason
    )
    assert query.unresolved() == {}
    assert emulated.checkpoints() == emulated.tips()


def decoded_rows(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.select("messageId", "parsed").toArrow().to_pylist()
    return rows


def test_a_plain_query_and_a_batch_read_have_the_decoded_column(
    spark: SparkSession, emulated: StreamUnderTest, tmp_path: Path
) -> None:
    """With the rows and the reasons that `parsed` gives on a frame; also where only some columns
    are asked for, without the payload; and of a scheme for which Spark has expressions.
    """
    register(spark)
    reader = spark.read.format("kinesis").options(**emulated.connection())
    plain = reader.load()
    scheme = SCHEMES["cloudwatch logs"]
    expected = decoded_rows(parsed(plain, scheme))

    def exploded(frame: DataFrame) -> list[Any]:
        rows = frame.select("messageId", F.explode("parsed").alias("parsed"))
        return sorted(rows.toArrow().to_pylist(), key=repr)

    whole = reader.option("scheme", "cloudwatch-logs").load()
    some = whole.select("messageId", "parsed").schema
    assert exploded(whole) == sorted(expected, key=repr)
    assert exploded(reader.schema(some).load()) == sorted(expected, key=repr)

    def by_query(name: str) -> list[Any]:
        rows: list[Any] = []
        TrackedQuery(spark, emulated, tmp_path / name).play(
            emulated.source(scheme=SCHEMES[name], application=name.replace(" ", "-")),
            lambda frame, _: rows.extend(decoded_rows(frame)),
        )
        return sorted(rows, key=repr)

    for name in ("compressed json", "raw"):
        assert by_query(name) == sorted(decoded_rows(parsed(plain, SCHEMES[name])), key=repr)


def test_an_unreachable_registry_stops_the_query_and_its_records_are_read_again(
    spark: SparkSession, empty: StreamUnderTest, moto_endpoint: str, tmp_path: Path
) -> None:
    """No record of the batch is acked, malformed or has used up an attempt by the outage. The error
    says which registry.
    """
    producer, url = Producer(moto_endpoint), nowhere()
    good = producer.record("orders", {"id": 1, "note": "x"}, AvroSchema(ORDER_1))
    newer = producer.record("orders", {"id": 2, "total": 0.5}, AvroSchema(ORDER_2))
    bad = {b"plain": NO_FRAME, encode(b"", UUID(int=99)): UNKNOWN_VERSION}
    for data in (good, newer, *bad):
        empty.put_record("framed", data)
    query = TrackedBatches(spark, empty, tmp_path / "checkpoint")
    found: list[Any] = []

    def process(batch: TrackedBatch, scheme: RecordScheme) -> None:
        rows = batch.fail_where(parsed(batch.df, scheme), "false", "never")
        found.extend(map(tuple, rows.select("parsed.value.id", "attempt").collect()))

    def registry(endpoint_url: str) -> GlueScheme:
        known: dict[str, Any] = {
            "aws": AWS,
            "endpoint_url": endpoint_url,
            "registry_name": producer.name,
        }
        return GlueScheme(AvroScheme(ORDER_2), GlueRegistry(**known, attempts=1))

    with pytest.raises(Exception, match="SchemeUnavailableError") as caught:
        query.run(lambda batch: process(batch, registry(url)))
    assert f"Glue Schema Registry at {url}" in str(caught.value)
    assert (found, query.letters) == ([], [])
    assert not empty.checkpoints()
    query.run(lambda batch: process(batch, registry(moto_endpoint)))
    assert sorted(found) == [(1, 1), (2, 1)]
    assert {letter.data: letter.reason for letter in query.letters} == bad
    assert {letter.attempts for letter in query.letters} == {1}
    assert query.unresolved() == {}
    assert empty.checkpoints() == empty.tips()


def test_the_spout_emits_a_record_with_its_rows(emulated: StreamUnderTest) -> None:
    """One emission for each record, acked or failed as a whole, and emitted again when it failed;
    malformed records go to the dead letters without being emitted.
    """
    for case in KINDS:
        letters: list[Letter] = []
        found = []
        with spout_of(
            AwsConfig(**fields_of(emulated.endpoint_url)),
            stream=STREAM,
            until="now",
            scheme=case.scheme,
            retry=RetryPolicy(first_delay_ms=10),
            dead_letter=letters.append,
        ) as spout:
            for emission in spout.emissions(lambda: False):
                if emission.attempt == 1:
                    emission.fail("not now")
                    continue
                if emission.record.partition_key == case.name:
                    found.append(emission.values)
                emission.ack()
        assert sorted(found, key=repr) == sorted(case.good.values(), key=repr)
        own = {one.data: one.reason for one in letters if one.partition_key == case.name}
        assert own == case.damaged
