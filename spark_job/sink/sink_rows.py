"""The rows that the sink writes: their columns in a frame, the checks of a batch, and the runs of
rows that make a request. Pure.

Rows stay in Arrow until their request is made: nothing is computed row by row.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.service.record_putter import (
    REQUEST_BYTES,
    REQUEST_RECORDS,
    OutgoingColumns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

MOST_RECORD_BYTES = 10 * 1024 * 1024  # API reference of PutRecords: data and key
MOST_KEY_CHARACTERS = 256
HASH_KEY = r"^(0|[1-9][0-9]{0,38})$"
LAST_HASH_KEY = str(2**128 - 1)
_KEY_BYTES = 8  # of a random key
_KEY_CHARACTERS = 2 * _KEY_BYTES
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
                raise ConfigError(
                    f"the frame has column {name} twice",
                    f"drop one of the two columns named {name}",
                )
            if field.dataType.typeName() not in _TYPES[name]:
                raise ConfigError(
                    f"column {name} has the type {field.dataType.simpleString()}",
                    f"cast column {name} to {' or '.join(_TYPES[name])}, or use to_json for "
                    "a struct",
                )
            found[name] = index
        if "data" not in found:
            raise ConfigError(
                "the frame has no column data",
                "give the sink a column data of binary or string, as in "
                'df.selectExpr("to_json(struct(*)) AS data")',
            )
        if not has_stream and "streamName" not in found:
            raise ConfigError(
                "no target stream is set",
                "set option streamName or streamArn, or add a column streamName",
            )
        return cls(
            found["data"],
            found.get("partitionKey"),
            found.get("explicitHashKey"),
            found.get("streamName"),
        )


def outgoing(rows: pa.RecordBatch) -> OutgoingColumns:
    """Rows of `checked` as they are put."""
    return OutgoingColumns(
        rows.column("key").to_pylist(),
        rows.column("data").to_pylist(),
        rows.column("hashKey").to_pylist() if "hashKey" in rows.schema.names else None,
    )


def runs(rows: pa.RecordBatch, *, by_key: bool) -> Iterator[pa.RecordBatch]:
    """Rows of `checked` in runs that fit into one request each, in their order. A row that is too
    large by itself is alone in its run.

    `by_key`: a run has each key once, and only the rows of a key are in their order: first the
    first rows of all keys, then their second rows, and so on.
    """
    starts = [0]
    if by_key and pc.count_distinct(rows.column("key")).as_py() < len(rows):
        order, starts = _turns(rows.column("key"))
        rows = rows.take(pa.array(order))
    sizes = rows.column("size").to_numpy()
    ends = np.cumsum(sizes)
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        at = start
        while at < stop:
            limit = ends[at] - sizes[at] + REQUEST_BYTES
            fitting = int(np.searchsorted(ends, limit, side="right"))
            end = max(at + 1, min(at + REQUEST_RECORDS, fitting, stop))
            yield rows.slice(at, end - at)
            at = end


def _turns(keys: pa.Array) -> tuple[NDArray[np.int64], list[int]]:
    """The indexes of the first row of each key, then those of the second rows, and so on, and where
    in them each turn begins.
    """
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    by_key = np.argsort(codes, kind="stable")
    is_first = np.diff(codes[by_key], prepend=-1) != 0
    firsts = np.flatnonzero(is_first)
    positions = np.arange(len(codes))
    turn = np.empty(len(codes), np.int64)
    turn[by_key] = positions - np.repeat(firsts, np.diff(firsts, append=len(codes)))
    order = np.argsort(turn, kind="stable")
    starts = np.flatnonzero(np.diff(turn[order], prepend=-1))
    return order, starts.tolist()


def checked(
    batch: pa.RecordBatch, columns: SinkColumns, most_bytes: int
) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """The rows of a batch by the stream that they name, in their order; None for the stream of the
    option. `most_bytes`: of data and key.

    Their columns are `data` (binary), `key` (text without nulls), `hashKey` if the frame has such a
    column, and `size`: the bytes of data and key.

    Checks all rows first. Raises `UnwritableRecordError` before it returns, so nothing of a batch
    with such a row is put.
    """
    data = batch.column(columns.data).cast(pa.large_binary())
    keys, hash_keys, streams = (
        None if index is None else batch.column(index)
        for index in (columns.partition_key, columns.explicit_hash_key, columns.stream_name)
    )
    _check(data.is_null(), "column data is null", "drop rows without data, or write empty data")
    _check_is_text(keys, "column partitionKey")
    if keys is None:
        keys = _random_keys(len(data))
    elif keys.null_count:
        keys = pc.coalesce(keys, _random_keys(len(data)).cast(keys.type))
    lengths = pc.utf8_length(keys)
    _check(
        pc.or_(pc.equal(lengths, 0), pc.greater(lengths, MOST_KEY_CHARACTERS)),
        "column partitionKey is empty or longer than 256 characters",
        "shorten the partition key, or write null for a random key",
    )
    sizes = pc.add(pc.binary_length(data), pc.binary_length(keys))
    _check(
        pc.greater(sizes, most_bytes),
        f"the data and the partition key take more than {most_bytes} bytes, which is the "
        "stream's maximum for one record",
        "split the row into several rows, or raise the maximum record size of the stream (at "
        "most 10 MiB)",
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
            "column explicitHashKey does not contain a hash key",
            "write a decimal number from 0 to 2^128 - 1, or null",
        )
    if streams is not None:
        _check(streams.is_null(), "column streamName is null", "set column streamName in every row")
        _check_is_text(streams, "column streamName")
    found = {"data": data, "key": keys, "hashKey": hash_keys, "size": sizes}
    rows = pa.RecordBatch.from_pydict({name: one for name, one in found.items() if one is not None})
    if streams is None:
        return iter([(None, rows)])
    encoded = streams.dictionary_encode()
    of_row = encoded.indices.to_numpy(zero_copy_only=False)
    # Not a generator itself: its checks would wait for the first row that is asked for.
    return (
        (stream, rows.take(pa.array(np.flatnonzero(of_row == code))))
        for code, stream in enumerate(encoded.dictionary.to_pylist())
    )


def _check(is_bad: pa.Array, what: str, remedy: str) -> None:
    """Raise `UnwritableRecordError` for the first row that is bad. Null counts as good."""
    row = pc.index(is_bad, value=True).as_py()
    if row >= 0:
        raise UnwritableRecordError(
            f"row {row + 1} of a batch of {len(is_bad)} cannot be put: {what}", remedy
        )


def _check_is_text(texts: pa.Array | None, what: str) -> None:
    """Spark keeps any bytes that were cast to a string; the service takes UTF-8."""
    if texts is None:
        return
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        found = [text or b"" for text in texts.cast(pa.large_binary()).to_pylist()]
        is_bad = pa.array([text.decode(errors="ignore").encode() != text for text in found])
        _check(is_bad, f"{what} is not UTF-8", "convert the value to text, for example with hex()")


def _random_keys(count: int) -> pa.Array:
    """Partition keys that spread the records over all shards. Not of a generator of this process,
    since a fork must not repeat its parent's keys.
    """
    texts = os.urandom(_KEY_BYTES * count).hex().encode()
    ends = np.arange(0, _KEY_CHARACTERS * (count + 1), _KEY_CHARACTERS, dtype=np.int64)
    return pa.LargeStringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(texts))
