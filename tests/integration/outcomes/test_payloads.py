"""Payloads as they are found on Kinesis, on the emulator: one query with many kinds of record,
good, damaged and hostile ones, through retry and dead letter; the same stream in a batch read and
in the spout.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from kinesis_spout.config import AwsConfig
from kinesis_spout.spout import KinesisSpout, SpoutConfig
from scheme import CloudWatchLogsScheme, Compressed, DynamoDbScheme, JsonScheme, parsed
from scheme.cloudwatch_logs import NOT_CLOUDWATCH
from scheme.compressed import TOO_LARGE, UNKNOWN_CODEC
from scheme.dynamodb import NOT_A_CHANGE, NOT_AN_ATTRIBUTE
from spark_job import register
from spark_job.process_services import ProcessServices
from tests.support.kinesis.services import create_stream, fields_of, kinesis_client
from tests.support.outcomes.payload_cases import CONTROL, change, cloudwatch, gzipped, nested, zstd
from tests.support.outcomes.scheme_cases import Readings
from tests.support.outcomes.tracked import TrackedBatches, TrackedQuery
from tests.support.spark.source import STREAM, ShiftedClock, StreamUnderTest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

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


KINDS = {
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
    "meters": Kind(
        Readings(),
        "parsed.value.reading",
        "parsed.value.name = 'late'",
        good={b"a=1\nb=2": [1, 2], b"late=3": [3]},
        bad={b"a=1\nb": "a line has no equals sign", b"a=x": "the scheme raised ValueError"},
    ),
}
ROWS = {name: [row for rows in kind.good.values() for row in rows] for name, kind in KINDS.items()}
REASONS = {data: reason for kind in KINDS.values() for data, reason in kind.bad.items()}


@pytest.fixture
def emulated(emulator_endpoint: str, zookeeper_chroot: str) -> Iterator[StreamUnderTest]:
    with kinesis_client(emulator_endpoint) as client:
        create_stream(client, STREAM, shards=2)
        try:
            stream = StreamUnderTest(client, emulator_endpoint, zookeeper_chroot, ShiftedClock())
            for name, kind in KINDS.items():
                for data in [*kind.good, *kind.bad]:
                    stream.put_record(name, data)
            yield stream
        finally:
            ProcessServices.forget_all()
            client.delete_stream(StreamName=STREAM)


def test_each_record_of_each_format_has_its_outcome(
    spark: SparkSession, emulated: StreamUnderTest, tmp_path: Path
) -> None:
    """Good ones are processed once, also one that fails at first, with all of its rows; one without
    rows is acked; malformed ones are dead letters, named with their reason. Nothing is left over.
    """
    query = TrackedQuery(spark, emulated, tmp_path / "checkpoint")
    found: dict[str, list[Any]] = defaultdict(list)

    def process(batch: TrackedBatch) -> None:
        for name, kind in KINDS.items():
            records = batch.df.where(F.col("partitionKey") == name)
            rows = parsed(records, kind.scheme)
            good = batch.fail_where(rows, f"attempt = 1 AND {kind.late}", "not now")
            found[name] += [
                row.shown for row in good.selectExpr(f"{kind.shown} AS shown").collect()
            ]

    query.run(process)
    assert {name: sorted(rows, key=repr) for name, rows in found.items()} == {
        name: sorted(rows, key=repr) for name, rows in ROWS.items()
    }
    assert {letter.data: letter.reason for letter in query.letters} == REASONS
    assert len(query.letters) == len(REASONS)
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
    assert sorted(found) == sorted(ROWS["logs"])
    good = KINDS["logs"].good
    assert len(query.letters) == sum(map(len, emulated.records.values())) - len(good)
    assert not {letter.data for letter in query.letters} & good.keys()
    assert query.unresolved() == {}


def test_a_batch_read_gives_the_same_rows(spark: SparkSession, emulated: StreamUnderTest) -> None:
    register(spark)
    frame = spark.read.format("kinesis").options(**emulated.connection()).load().cache()
    for name, kind in KINDS.items():
        rows = parsed(frame.where(F.col("partitionKey") == name), kind.scheme)
        found = rows.selectExpr("data", "parsed.malformed", f"{kind.shown} AS shown").collect()
        good = [row.shown for row in found if row.malformed is None]
        assert sorted(good, key=repr) == sorted(ROWS[name], key=repr)
        assert {bytes(row.data): row.malformed for row in found if row.malformed} == kind.bad


def test_the_spout_emits_a_record_with_its_rows(emulated: StreamUnderTest) -> None:
    """One emission for each record, acked or failed as a whole; malformed records go to the dead
    letters without being emitted.
    """
    letters: list[Letter] = []
    config = SpoutConfig(
        stream=STREAM,
        aws=AwsConfig(**fields_of(emulated.endpoint_url)),
        starting_position="TRIM_HORIZON",
        until="now",
        scheme=CloudWatchLogsScheme(),
        dead_letter=letters.append,
    )
    found = []
    with KinesisSpout(config) as spout:
        for emission in spout.emissions(lambda: False):
            found.append([row[6] for row in emission.values])
            emission.ack()
    assert sorted(found) == sorted(KINDS["logs"].good.values())
    assert {
        letter.data: letter.reason for letter in letters if letter.partition_key == "logs"
    } == KINDS["logs"].bad
