"""Decoding of GetRecords bodies in CBOR (`application/x-amz-cbor-1.1`) into columns.

`cbor_record_scan` finds where the values of a regular page are, and Arrow copies them out, so
nothing runs per record in Python. cbor2 alone creates objects for each record, which takes longer
than decoding the same page from JSON (benchmarks/wire_format.py measures it). It parses what is
not a regular page: pages with few records, records of different shapes, and all that is beside the
records.

Times are milliseconds since 1970, as the SDKs of AWS read them, with the tag of a time or without.
By RFC 8949 that tag has seconds, and an emulator may keep to it: numbers below 10^11 are taken for
seconds. As milliseconds they would be before 1974.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2
import msgspec
import numpy as np
import pyarrow as pa

from kinesis_spout.errors import MalformedResponseError
from kinesis_spout.service.cbor_record_scan import BYTES, TEXT, scan_records
from kinesis_spout.service.get_records_decoder import (
    MAX_MICROS,
    MIN_MICROS,
    Body,
    DecodedPage,
    decoded_page,
    malformed_explained,
    page_of_rows,
)
from kinesis_spout.service.record_columns import ARRIVAL_TYPE, PAGE_SCHEMA, RecordColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kinesis_spout.service.cbor_record_scan import ScannedRecords

_NUMBER, _KEY, _DATA = (TEXT, b"SequenceNumber"), (TEXT, b"PartitionKey"), (BYTES, b"Data")
_STRINGS = (_NUMBER, _KEY, _DATA)
_ARRIVAL = b"ApproximateArrivalTimestamp"
_MAX_BODY = 2**31 - 1  # Arrow's offsets have 32 bits
_SECONDS_BELOW = 1e11
_MAX_TIME = 2.0**52  # ms; up to there a double is exact


def encode_cbor(arguments: dict[str, Any]) -> bytes:
    """A request's body."""
    return cbor2.dumps(arguments)


def decode_cbor(body: bytes) -> Any:
    """One CBOR item; times are left as numbers or texts. Raises `ValueError`."""
    try:
        return cbor2.loads(body, semantic_decoders={0: _untagged, 1: _untagged})
    except (cbor2.CBORDecodeError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc


def decode_get_records_cbor(body: bytes, *, as_lists: bool = False) -> DecodedPage:
    """Decode the CBOR body of a GetRecords answer with status 200. Raises
    `MalformedResponseError`. Pure.

    `as_lists`: for a caller that reads record by record. The columns are lists then, else Arrow.
    """
    with malformed_explained(body, " as CBOR"):
        scanned = scan_records(body) if len(body) <= _MAX_BODY else None
        page = None if scanned is None else _scanned_page(body, scanned, as_lists=as_lists)
        if page is not None:
            return page
        return page_of_rows(msgspec.convert(decode_cbor(body), Body), _arrivals)


def _scanned_page(body: bytes, scanned: ScannedRecords, *, as_lists: bool) -> DecodedPage | None:
    """None where the records have no time, or none that can be, or not the three strings."""
    moments = scanned.numbers.get(_ARRIVAL)
    if moments is None or any(name not in scanned.spans for name in _STRINGS):
        return None
    moments = moments.astype(np.float64)
    if not bool((np.abs(moments) < _MAX_TIME).all()):
        return None
    micros = _micros(moments)
    if len(micros) and not MIN_MICROS <= micros.min() <= micros.max() <= MAX_MICROS:
        return None
    rest = msgspec.convert(decode_cbor(scanned.rest), Body)
    if rest.Records:  # there were two lists of records
        return None
    arrivals = _as_arrow(micros, ARRIVAL_TYPE)
    # The casts raise for what is not UTF-8.
    texts = [_strings(body, *scanned.spans[name]).cast(pa.string()) for name in (_NUMBER, _KEY)]
    begins, ends = scanned.spans[_DATA]
    if as_lists:
        data = [body[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        numbers, keys = map(_as_list, texts)
        columns = RecordColumns(numbers, keys, data, arrivals)
    else:
        payloads = _strings(body, begins, ends)
        columns = RecordColumns.of(
            pa.RecordBatch.from_arrays([*texts, payloads, arrivals], schema=PAGE_SCHEMA)
        )
    begins, ends = scanned.spans[_NUMBER]
    first, last = (body[begins[index] : ends[index]].decode() for index in (0, -1))
    return decoded_page(rest, columns, scanned.count, (first, last))


def _strings(body: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> pa.Array:
    """The strings between these places, copied out of the body.

    An Arrow array of strings says where each value ends and the next one begins. So the body
    becomes an array in which every second value is what lies between two of the strings. One array
    for all columns would be shorter, but Arrow takes its values' mean size for the size of what is
    taken, and copies the long ones again.
    """
    edges: NDArray[np.int32] = np.empty((len(begins), 2), np.int32)
    edges[:, 0], edges[:, 1] = begins, ends
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(body)]
    values = pa.Array.from_buffers(pa.binary(), edges.size - 1, buffers)
    return values.take(_as_arrow(np.arange(0, edges.size, 2, dtype=np.int64), pa.int64()))


def _arrivals(moments: list[float | str | None]) -> pa.Array:
    """The times of records that were parsed one by one."""
    if str in set(map(type, moments)):
        raise MalformedResponseError(
            "the service's answer to GetRecords cannot be read as CBOR (an arrival time is a text)"
        )
    numbers = np.array([0.0 if moment is None else float(moment) for moment in moments])
    known = np.packbits([moment is not None for moment in moments], bitorder="little")
    return _as_arrow(_micros(numbers), ARRIVAL_TYPE, known)


def _micros(moments: NDArray[np.float64]) -> NDArray[np.int64]:
    """Milliseconds, or seconds, as microseconds: the fraction is rounded half to even. Raises
    `ValueError` for what is no time.
    """
    if not bool((np.abs(moments) < _MAX_TIME).all()):
        raise ValueError("an arrival time is not within the years that a time can have")
    unit = np.where(np.abs(moments) < _SECONDS_BELOW, 1_000_000, 1_000)
    whole = np.trunc(moments)
    fraction = np.rint((moments - whole) * unit)
    return whole.astype(np.int64) * unit + fraction.astype(np.int64)


def _as_arrow(
    values: NDArray[np.int64], kind: pa.DataType, known: NDArray[np.uint8] | None = None
) -> pa.Array:
    """The values without a copy, and null where the bit of `known` is 0. Not by `pa.array`, which
    imports pandas: half a second of CPU and 36 MB in each process.
    """
    bits = None if known is None else pa.py_buffer(known)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


def _as_list(texts: pa.Array) -> list[str]:
    """Not by `to_pylist`, which takes twenty times as long in older versions of pyarrow."""
    values: list[str] = texts.to_numpy(zero_copy_only=False).tolist()
    return values


def _untagged(value: Any, _immutable: bool) -> Any:  # noqa: FBT001  # the signature is cbor2's
    return value
