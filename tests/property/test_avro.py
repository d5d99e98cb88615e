"""Avro payloads that numpy reads side by side have the outcomes that fastavro gives to each."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheme import AvroScheme
from scheme.avro_scheme import AvroReader, avro_reader
from scheme.payload_scheme import PayloadScheme
from tests.support.outcomes.avro_cases import FLAT, ORDER, PRICE, written

longs = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-300, 300))
ints = st.integers(-(1 << 31), (1 << 31) - 1)
items = st.fixed_dictionaries({"sku": st.binary(min_size=2, max_size=2), "raw": st.binary()})
flat: dict[str, st.SearchStrategy[Any]] = {
    "id": longs,
    "count": ints,
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
nested = flat | {
    "tags": st.dictionaries(st.text(max_size=5), longs, max_size=4),
    "items": st.lists(items, max_size=5),
}
FIXED = {"type": "fixed", "name": "D", "size": 9, "logicalType": "decimal", "precision": 20}
PRICES: dict[str, Any] = {
    "type": "record",
    "name": "Prices",
    "fields": [
        {"name": "all", "type": {"type": "array", "items": PRICE}},
        {"name": "size", "type": ["null", "long", "int"]},
        {"name": "ratio", "type": ["float", "double"]},
        {"name": "sum", "type": FIXED},
        {"name": "deep", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
    ],
}
prices = st.fixed_dictionaries(
    {
        "n": st.decimals(-99, 99, places=2),
        "key": st.none() | longs | st.text(max_size=3) | st.just(("E", "A")),
    }
)
priced: dict[str, st.SearchStrategy[Any]] = {
    "all": st.lists(prices, max_size=4),
    "size": st.none() | longs,
    "ratio": st.floats(),
    "sum": st.integers(-(10**20) + 1, 10**20 - 1).map(Decimal),
    "deep": st.dictionaries(
        st.text(max_size=2), st.lists(st.text(max_size=2), max_size=3), max_size=4
    ),
}
NEWER = ORDER | {
    "fields": [
        {"name": "channel", "type": "bytes", "default": "\u00ff"},
        *(field for field in ORDER["fields"] if field["name"] not in ("paid", "tags", "id")),
        {"name": "id", "type": ["null", "double"]},
        {"name": "old", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
    ]
}


class Case(NamedTuple):
    """A schema, the fields of its values, and the schema that reads them."""

    schema: Any
    fields: dict[str, st.SearchStrategy[Any]]
    reader_schema: Any = None

    @property
    def scheme(self) -> AvroScheme:
        return AvroScheme(self.schema, self.reader_schema)

    @property
    def reader(self) -> AvroReader:
        scheme = self.scheme
        return avro_reader(scheme.schema, scheme.reader_schema)

    def side_by_side(self, payloads: pa.Array) -> pa.Array | None:
        """The outcomes of payloads that are all good; None if one is read alone."""
        found = self.reader.together(payloads)
        return None if found is None or len(found[1]) else found[0]

    @property
    def payloads(self) -> st.SearchStrategy[bytes]:
        return st.fixed_dictionaries(self.fields).map(lambda value: written(self.schema, value))

    def one_by_one(self, found: list[bytes]) -> list[Any]:
        parts = PayloadScheme.outcomes(self.scheme, pa.array(found, pa.binary()))
        return [element for part in parts for element in part.to_pylist()]


CASES = {
    "flat": Case(FLAT, flat),
    "nested": Case(ORDER, nested),
    "decimals and unions": Case(PRICES, priced),
    "resolved": Case(ORDER, nested, NEWER),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
@given(st.data())
def test_good_payloads_are_read_side_by_side(case: Case, data: st.DataObject) -> None:
    """All of them, with the values that each has alone. Also from the middle of a larger array."""
    found = data.draw(st.lists(case.payloads, max_size=20))
    padded = pa.array([b"before", *found, b"behind"], pa.binary())
    together = case.side_by_side(padded.slice(1, len(found)))
    if found:
        assert together is not None
        assert repr(together.to_pylist()) == repr(case.one_by_one(found))


@every_case
@given(st.data(), st.integers(0), st.integers(0, 3), st.binary(max_size=3))
def test_what_is_read_side_by_side_is_what_fastavro_reads(
    case: Case, data: st.DataObject, at: int, cut: int, new: bytes
) -> None:
    """Of a payload with some bytes changed, or of any: it is left to fastavro, or has the same
    values, and never takes bytes of its neighbours.
    """
    payload, good = data.draw(case.payloads), data.draw(case.payloads)
    at %= len(payload) + 1
    damaged = payload[:at] + new + payload[at + cut :]
    for found in ([damaged], [good, damaged, good], [new]):
        together = case.side_by_side(pa.array(found, pa.binary()))
        if together is not None:
            assert repr(together.to_pylist()) == repr(case.one_by_one(found))


@every_case
@given(st.data())
def test_a_damaged_payload_leaves_those_beside_it_side_by_side(
    case: Case, data: st.DataObject
) -> None:
    """And the outcomes of all are those of each, at its place."""
    good = data.draw(st.lists(case.payloads, min_size=3, max_size=6))
    damaged = [good[0][:-1], good[1] + b"\x00", b""]
    found = data.draw(st.permutations([*good * 2, *damaged]))
    array = pa.array(found, pa.binary())
    parts = [element for part in case.scheme.outcomes(array) for element in part.to_pylist()]
    assert repr(parts) == repr(case.one_by_one(found))
    together = case.reader.together(array)
    assert together is not None
    assert {found[place] for place in together[1]} <= {*damaged}


def test_times_at_the_ends_of_the_calendar_and_lengths_that_lie() -> None:
    """A length of each payload that is that of all of them would need the square of the memory."""
    ends = {
        "placed": datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        "wall": datetime(1, 1, 1),  # noqa: DTZ001  # a wall-clock time has no zone
        "day": date(9999, 12, 31),
    }
    order = {"id": 0, "count": 0, "customer": "", "total": None, "weight": 0, "paid": False}
    payload = written(FLAT, order | {"currency": "EUR", "first": None} | ends)
    case = CASES["flat"]
    assert case.side_by_side(pa.array([payload])) is not None
    liar = b"\x00\x00\x80\x80\x40" + b"x" * 1000  # a customer of half a MiB
    assert case.side_by_side(pa.array([liar] * 5000)) is None


@pytest.mark.parametrize(
    ("schema", "good", "damaged"),
    [
        ({"type": "string"}, b"\x04ab", b"\x04a\xff"),
        (PRICE, b"\x02\x64\x00", b"\x04\x40\x00\x00"),
        ({"type": "array", "items": "boolean"}, b"\x02\x01\x00", b"\x06\x01\x00"),
    ],
    ids=["UTF-8", "digits", "items"],
)
def test_a_value_that_does_not_fit_is_left_to_fastavro_alone(
    schema: Any, good: bytes, damaged: bytes
) -> None:
    together = Case(schema, {}).reader.together(pa.array([good, damaged, good]))
    assert together is not None
    assert together[1].tolist() == [1]


def test_a_few_long_arrays_are_left_to_fastavro() -> None:
    """Their items would be taken one at a time. All outcomes are the same."""
    case = Case(
        {
            "type": "record",
            "name": "L",
            "fields": [{"name": "l", "type": {"type": "array", "items": "long"}}],
        },
        {},
    )
    long, short = (written(case.schema, {"l": list(range(count))}) for count in (5000, 2))
    assert case.side_by_side(pa.array([short] * 100)) is not None
    assert case.side_by_side(pa.array([long, short])) is None
    found = [long, short]
    parts = case.scheme.outcomes(pa.array(found))
    assert [one for part in parts for one in part.to_pylist()] == case.one_by_one(found)
