"""The columns of a frame as records, and the options of the sink."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kinesis_spout.errors import ConfigError
from kinesis_spout.service.record_putter import OutgoingRecord
from spark_job.sink.sink_rows import SinkColumns, UnwritableRecordError, checked
from spark_job.sink.sink_settings import SinkSettings

ALL = "data binary, partitionKey string, explicitHashKey string, streamName string"
TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "bigint": LongType(),
    "struct": StructType([StructField("a", IntegerType())]),
}


def schema(ddl: str) -> StructType:
    """As `StructType.fromDDL`, which needs a Spark session."""
    fields = (field.split() for field in ddl.split(","))
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def records(most_bytes: int = 1000, **columns: list[Any]) -> list[OutgoingRecord]:
    """The records of a batch with these columns, texts or bytes."""
    batch = pa.record_batch(columns)
    indexes = SinkColumns(
        *(
            list(columns).index(name) if name in columns else None
            for name in ("data", "partitionKey", "explicitHashKey", "streamName")
        )  # type: ignore[arg-type]
    )
    return [
        record
        for _, rows in checked(batch, indexes, most_bytes)
        for record in rows.columns().records()
    ]


def test_columns_are_found_by_name_in_any_case_and_others_are_ignored() -> None:
    found = SinkColumns.of(schema("id bigint, DATA string, partitionkey string"), has_stream=True)
    assert found == SinkColumns(1, 2, None, None)
    assert SinkColumns.of(schema(ALL), has_stream=False) == SinkColumns(0, 1, 2, 3)
    # A frame that was read from a stream has this column; its rows must not return there.
    assert SinkColumns.of(schema(ALL), has_stream=True).stream_name is None


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("body binary", "column data is missing.*to_json"),
        ("data struct", "column data is of type struct<a:int>.*binary or string.*to_json"),
        ("data binary, partitionKey bigint", "column partitionKey is of type bigint.*string"),
        ("data binary, Data string", "column data is there twice"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(ddl: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SinkColumns.of(schema(ddl), has_stream=True)
    with pytest.raises(ConfigError, match=r"the stream is not named.*streamName or streamArn"):
        SinkColumns.of(schema("data binary"), has_stream=False)


def test_text_is_put_as_utf_8_and_a_null_key_becomes_a_random_one() -> None:
    """Which counts in the size of its record, as for the service. An explicit hash key goes with
    the record.
    """
    last = str(2**128 - 1)
    hashes = ["0", last, *[None] * 998]
    keys = ["k", *[None] * 999]
    put = records(data=["\u20ac"] * 1000, partitionKey=keys, explicitHashKey=hashes)
    assert put[0] == OutgoingRecord("k", "\u20ac".encode(), "0")
    assert [one.explicit_hash_key for one in put] == hashes
    random = {one.partition_key for one in put[1:]}
    assert len(random) == 999
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in random)
    (binary,) = records(data=[b"\xff" * 984])
    assert binary.data == b"\xff" * 984
    with pytest.raises(UnwritableRecordError, match="more than 1000 bytes"):
        records(data=[b"x" * 985])
    assert records(data=pa.array([], pa.binary())) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"data": [b"a", None]}, "row 2 of a batch of 2 cannot be put: column data is null"),
        ({"data": [b"x" * 1001]}, "more than 1000 bytes.*maximum record size"),
        ({"data": [b"x" * 999], "partitionKey": ["\u20ac"]}, "more than 1000 bytes"),
        ({"data": [b"a"], "partitionKey": [""]}, "partitionKey is empty or longer than 256"),
        ({"data": [b"a"], "explicitHashKey": [str(2**128)]}, "explicitHashKey is not a hash key"),
        ({"data": [b"a"], "streamName": pa.array([None], pa.string())}, "streamName is null"),
    ],
)
def test_a_row_that_cannot_be_put_stops_its_batch_before_anything_is_put(
    columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnwritableRecordError, match=message):
        records(**columns)


def test_a_text_that_is_not_utf_8_stops_its_batch() -> None:
    """Spark keeps any bytes that were cast to a string."""
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    with pytest.raises(UnwritableRecordError, match="column partitionKey is not UTF-8"):
        records(data=pa.array([b"1", b"2", b"3"]), partitionKey=texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingPosition": "LATEST"}, "option startingPosition is not known"),
        ({"retry_for": "5m"}, "did you mean retryFor"),
        ({"streamName": "a", "streamArn": "arn:aws:kinesis:eu-west-1:1:stream/a"}, "both given"),
        ({"requestsInFlight": "0"}, "at least 1"),
        ({"awsAccessKeyId": "a"}, "awsSecretAccessKey"),
        ({"aggregate": "true", "ordering": "key"}, "aggregate is true and option ordering is key"),
    ],
)
def test_a_bad_option_of_the_sink_is_refused(options: dict[str, str], message: str) -> None:
    """Those of a stream may be left out, and all are taken in any case."""
    with pytest.raises(ConfigError, match=message):
        SinkSettings.from_options(options)
    stream = SinkSettings.from_options({"STREAMNAME": "orders"}).stream
    assert (stream and stream.name, SinkSettings.from_options({}).stream) == ("orders", None)
