"""The rows of a page of records, and the records that are refused."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from kinesis_spout.errors import ConfigError
from kinesis_spout.reading.user_records import AggregatedRecordError, refuse_aggregates
from kinesis_spout.service.get_records_decoder import PAGE_SCHEMA
from scheme import CloudWatchLogsScheme
from scheme.record import KPL_MAGIC
from spark_job.data_source import SCHEMA_DDL, selected_columns
from spark_job.rows import COLUMNS, ShardRows
from spark_job.scheme_column import column_type
from spark_job.settings import RAW
from tests.architecture.source_tree import ROOT
from tests.support.simulated.simulated_job import AGGREGATE

SHARD = "shardId-000000000003"
ARRIVAL = datetime(2013, 1, 1, 5, 17, 0, 123_000, tzinfo=UTC)


def page(*payloads: bytes) -> pa.RecordBatch:
    rows = [
        {
            "sequenceNumber": f"495{n}",
            "partitionKey": f"k{n}",
            "data": data,
            "approximateArrivalTimestamp": ARRIVAL,
        }
        for n, data in enumerate(payloads)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=PAGE_SCHEMA)


def rows_with(columns: tuple[str, ...] = COLUMNS) -> ShardRows:
    return ShardRows(
        SHARD, stream="orders", aggregated_records=RAW, hash_range=None, columns=columns
    )


def test_the_columns_are_those_of_the_schema_given_to_spark() -> None:
    """Spark takes the batches unchecked, so names, order and types must be the schema's."""
    arrow_types = {
        "STRING": pa.string(),
        "BIGINT": pa.int64(),
        "INT": pa.int32(),
        "BINARY": pa.binary(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }
    declared = [column.split() for column in SCHEMA_DDL.split(", ")]
    rows = rows_with().of_unpacked(page(b"a"))
    assert [(name, arrow_types[kind]) for name, kind in declared] == [
        (field.name, field.type) for field in rows.schema
    ]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (StructType().add("key", StringType()), "a column key STRING, .*"),
        (StructType().add("data", StringType()), "a column data STRING, .* BINARY"),
        (StructType().add("DATA", BinaryType()), "a column DATA BINARY, .* data BINARY"),
        (StructType().add("data", BinaryType()).add("data", BinaryType()), "column data twice"),
        (StructType().add("data", BinaryType(), nullable=False), "column data NOT NULL, .*remove"),
        (StructType(), "has no columns; use only columns of"),
    ],
    ids=["unknown", "type", "case", "twice", "not null", "none"],
)
def test_a_schema_with_other_columns_is_refused_with_those_there_are(
    schema: StructType, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        selected_columns(schema)


def test_the_column_of_a_scheme_may_be_asked_for_with_the_schemes_type() -> None:
    scheme = CloudWatchLogsScheme()
    kind = from_arrow_type(column_type(scheme))
    asked = StructType().add("parsed", kind).add("attempt", IntegerType())
    assert selected_columns(asked, scheme) == ("parsed", "attempt")
    for other in (StringType(), kind.elementType):  # type: ignore[attr-defined]  # an ArrayType
        with pytest.raises(ConfigError, match=r"column parsed whose type differs .* ARRAY<STRUCT<"):
            selected_columns(StructType().add("parsed", other), scheme)
    with pytest.raises(ConfigError, match="a column parsed STRING"):
        selected_columns(StructType().add("parsed", StringType()))


def test_an_aggregate_is_refused_with_what_to_do_and_a_payload_like_one_is_not() -> None:
    plain = (b"", KPL_MAGIC, KPL_MAGIC + b"a payload of one's own", AGGREGATE[:-1] + b"\x00")
    refuse_aggregates(page(*plain), SHARD)
    told = rf"4954 of shard {SHARD}.*aggregatedRecords to 'unpack'"
    with pytest.raises(AggregatedRecordError, match=told):
        refuse_aggregates(page(*plain, AGGREGATE, AGGREGATE), SHARD)


@pytest.mark.parametrize("count", [0, 1, 9_999, 10_000, 10_001, 25_000])
def test_every_row_of_a_page_of_any_length_has_the_constant_columns(count: int) -> None:
    """The columns are kept for the next page, longer than this one or shorter."""
    records = page(*[b""] * count)
    rows = rows_with(("streamName", "shardId", "subSequenceNumber", "attempt")).of_unpacked(records)
    rows.validate(full=True)
    assert rows.num_rows == count
    assert [column.unique().to_pylist() for column in rows.columns] == (
        [["orders"], [SHARD], [0], [1]] if count else [[], [], [], []]
    )


WITHOUT_PANDAS = """
import sys
import cbor2
from kinesis_spout.service.get_records_cbor import decode_get_records_cbor
from spark_job.data_source import KinesisStreamReader
from spark_job.rows import COLUMNS, ShardRows

def body(count):
    return cbor2.dumps({"Records": [
        {"SequenceNumber": str(495 + n), "PartitionKey": "k", "Data": b"x" * 100,
         "ApproximateArrivalTimestamp": cbor2.CBORTag(1, 1_700_000_000_000)}
        for n in range(count)
    ]})

rows = ShardRows(
    "s", stream="orders", aggregated_records="unpack", hash_range=None, columns=COLUMNS
)
for count in (20, 2_000):
    page = decode_get_records_cbor(body(count))
    assert sum(part.num_rows for part in rows.of(page.records)) == count
assert "pandas" not in sys.modules
"""


def test_rows_of_pages_in_cbor_import_no_pandas() -> None:
    """Many calls of pyarrow import it, and none of these needs it: up to half a second of CPU, and
    36 MB, in each of Spark's workers.
    """
    command = [sys.executable, "-c", WITHOUT_PANDAS]
    subprocess.run(command, check=True, timeout=60, cwd=ROOT)
