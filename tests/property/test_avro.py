"""Avro payloads that numpy reads side by side have the outcomes that fastavro gives to each."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from scheme import AvroScheme
from scheme.avro_scheme import AvroReader, avro_reader
from scheme.payload_scheme import PayloadScheme
from tests.support.outcomes.avro_cases import FLAT, written

SCHEME = AvroScheme(FLAT)

longs = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-300, 300))
items = st.fixed_dictionaries({"sku": st.binary(min_size=2, max_size=2), "raw": st.binary()})
orders = st.fixed_dictionaries(
    {
        "id": longs,
        "count": st.integers(-(1 << 31), (1 << 31) - 1),
        "customer": st.text(max_size=200),
        "total": st.none() | st.floats(),
        "weight": st.floats(width=32),
        "paid": st.booleans(),
        "currency": st.sampled_from(["EUR", "USD"]),
        "placed": st.datetimes(timezones=st.just(UTC)).map(
            lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        ),
        "wall": st.datetimes(),
        "day": st.none() | st.dates(),
        "first": st.none() | items,
    }
)
payloads = orders.map(lambda order: written(FLAT, order))


def reader() -> AvroReader:
    return avro_reader(SCHEME.schema, None)


def one_by_one(found: list[bytes]) -> list[Any]:
    parts = PayloadScheme.outcomes(SCHEME, pa.array(found, pa.binary()))
    return [element for part in parts for element in part.to_pylist()]


@given(st.lists(payloads, max_size=20))
def test_good_payloads_are_read_side_by_side(found: list[bytes]) -> None:
    """All of them, with the values that each has alone. Also from the middle of a larger array."""
    padded = pa.array([b"before", *found, b"behind"], pa.binary())
    together = reader().side_by_side(padded.slice(1, len(found)))
    assert together is not None
    assert repr(together.to_pylist()) == repr(one_by_one(found))


@given(payloads, st.integers(0), st.integers(0, 3), st.binary(max_size=3), payloads)
def test_what_is_read_side_by_side_is_what_fastavro_reads(
    payload: bytes, at: int, cut: int, new: bytes, good: bytes
) -> None:
    """Of a payload with some bytes changed, or of any: it is left to fastavro, or has the same
    values, and never takes bytes of its neighbours.
    """
    at %= len(payload) + 1
    damaged = payload[:at] + new + payload[at + cut :]
    for found in ([damaged], [good, damaged, good], [new]):
        together = reader().side_by_side(pa.array(found, pa.binary()))
        if together is not None:
            assert repr(together.to_pylist()) == repr(one_by_one(found))


def test_times_at_the_ends_of_the_calendar_and_lengths_that_lie() -> None:
    """A length of each payload that is that of all of them would need the square of the memory."""
    ends = {
        "placed": datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        "wall": datetime(1, 1, 1),  # noqa: DTZ001  # a wall-clock time has no zone
        "day": date(9999, 12, 31),
    }
    order = {"id": 0, "count": 0, "customer": "", "total": None, "weight": 0, "paid": False}
    payload = written(FLAT, order | {"currency": "EUR", "first": None} | ends)
    assert reader().side_by_side(pa.array([payload])) is not None
    liar = b"\x00\x00\x80\x80\x40" + b"x" * 1000  # a customer of half a MiB
    assert reader().side_by_side(pa.array([liar] * 5000)) is None
