"""The columns that the sink writes: found in a schema, and checked in a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.errors import ConfigError, KinesisError
from spark_job.sink.sink_rows import SinkRows, without_nulls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

MOST_RECORD_BYTES = 10 * 1024 * 1024  # API reference of PutRecords: data and key
MOST_KEY_CHARACTERS = 256
HASH_KEY = r"^(0|[1-9][0-9]{0,38})$"
LAST_HASH_KEY = str(2**128 - 1)
_TYPES = {
    "data": ("binary", "string"),
    "partitionKey": ("string",),
    "explicitHashKey": ("string",),
    "streamName": ("string",),
}


class UnwritableRecordError(KinesisError):
    """A row that cannot be put: without data, too large, or with a key that the service refuses."""


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The indexes of the sink's columns in a frame; None for one that it does not have."""

    data: int
    partition_key: int | None
    explicit_hash_key: int | None
    stream_name: int | None

    @classmethod
    def of(cls, schema: StructType, *, has_stream: bool) -> SinkColumns:
        """Find the columns by name, in upper or lower case. Raises `ConfigError` for a missing
        column, one that is there twice, or one of another type. Others are ignored.

        `has_stream`: the stream is named by an option, which goes before column `streamName`.
        """
        found: dict[str, int] = {}
        for index, field in enumerate(schema.fields):
            name = next((name for name in _TYPES if name.lower() == field.name.lower()), None)
            if name is None or (name == "streamName" and has_stream):
                continue
            if name in found:
                raise ConfigError(f"column {name} is there twice; the sink writes one of each name")
            if field.dataType.typeName() not in _TYPES[name]:
                raise ConfigError(
                    f"column {name} is of type {field.dataType.simpleString()}; the sink writes "
                    f"{' or '.join(_TYPES[name])}, so cast it, or use to_json for a struct"
                )
            found[name] = index
        if "data" not in found:
            raise ConfigError(
                "column data is missing; give the sink a column data of binary or string, as in "
                'df.selectExpr("to_json(struct(*)) AS data")'
            )
        if not has_stream and "streamName" not in found:
            raise ConfigError(
                "the stream is not named; give option streamName or streamArn, or a column "
                "streamName"
            )
        return cls(
            found["data"],
            found.get("partitionKey"),
            found.get("explicitHashKey"),
            found.get("streamName"),
        )


class StreamRows(NamedTuple):
    """The rows of a batch that name a stream, in their order; None for the stream of the option."""

    stream: str | None
    rows: SinkRows


def checked(batch: pa.RecordBatch, columns: SinkColumns, most_bytes: int) -> Iterator[StreamRows]:
    """The rows of a batch, stream by stream. `most_bytes`: of data and key.

    Checks all rows first. Raises `UnwritableRecordError` before it returns, so nothing of a batch
    with such a row is put.
    """
    data = batch.column(columns.data).cast(pa.large_binary())
    keys, hash_keys, streams = (
        None if index is None else batch.column(index)
        for index in (columns.partition_key, columns.explicit_hash_key, columns.stream_name)
    )
    _check(data.is_null(), "column data is null", "filter such rows, or write an empty value")
    _check_is_text(keys, "column partitionKey")
    keys = without_nulls(keys, len(data))
    lengths = pc.utf8_length(keys)
    _check(
        pc.or_(pc.equal(lengths, 0), pc.greater(lengths, MOST_KEY_CHARACTERS)),
        "column partitionKey is empty or longer than 256 characters",
        "shorten it, or write null for a random key",
    )
    sizes = pc.add(pc.binary_length(data), pc.binary_length(keys))
    _check(
        pc.greater(sizes, most_bytes),
        f"data and key take more than {most_bytes} bytes, which the stream accepts at most",
        "split the record, or raise the stream's maximum record size (at most 10 MiB)",
    )
    if hash_keys is not None:
        _check(
            pc.or_(
                pc.invert(pc.match_substring_regex(hash_keys, HASH_KEY)),
                # As texts, which are compared as numbers where they are of the same length.
                pc.and_(
                    pc.equal(pc.utf8_length(hash_keys), len(LAST_HASH_KEY)),
                    pc.greater(hash_keys, LAST_HASH_KEY),
                ),
            ),
            "column explicitHashKey is not a hash key",
            "write a decimal number from 0 to 2^128 - 1, or null",
        )
    if streams is not None:
        _check(streams.is_null(), "column streamName is null", "name a stream in every row")
        _check_is_text(streams, "column streamName")
    return _by_stream(SinkRows(data, keys, hash_keys, sizes.to_numpy()), streams)


def _check(is_bad: pa.Array, what: str, remedy: str) -> None:
    """Raise `UnwritableRecordError` for the first row that is bad. Null counts as good."""
    row = pc.index(is_bad, value=True).as_py()
    if row >= 0:
        raise UnwritableRecordError(
            f"row {row + 1} of a batch of {len(is_bad)} cannot be put: {what}; {remedy}"
        )


def _check_is_text(texts: pa.Array | None, what: str) -> None:
    """Spark keeps any bytes that were cast to a string; the service takes UTF-8."""
    if texts is None:
        return
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        is_bad = [not _is_utf8(text) for text in texts.cast(pa.large_binary()).to_pylist()]
        _check(pa.array(is_bad), f"{what} is not UTF-8", "write it as text, as with hex()")


def _is_utf8(text: bytes | None) -> bool:
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _by_stream(rows: SinkRows, streams: pa.Array | None) -> Iterator[StreamRows]:
    if streams is None:
        yield StreamRows(None, rows)
        return
    encoded = streams.dictionary_encode()
    of_row = encoded.indices.to_numpy(zero_copy_only=False)
    for code, stream in enumerate(encoded.dictionary.to_pylist()):
        yield StreamRows(stream, rows.take(np.flatnonzero(of_row == code)))
