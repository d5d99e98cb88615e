"""A page's records in both forms: lists and Arrow have the same values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kinesis_spout.service.get_records_decoder import (
    ARRIVAL_TYPE,
    PAGE_SCHEMA,
    RecordColumns,
    RecordLists,
)

NUMBERS, KEYS, DATA = ["1", "2", "3"], ["a", "é", ""], [b"x", b"", b"\xf3\x89\x9a\xc2 rest"]
LISTS = RecordLists(NUMBERS, KEYS, DATA, [1_000, 2_000, 2_999])


def columns() -> RecordColumns:
    arrivals = pa.array([1_000_000, 2_000_001, 2_999_999], ARRIVAL_TYPE)
    return RecordColumns(list(NUMBERS), list(KEYS), list(DATA), arrivals)


@pytest.fixture(params=["lists", "Arrow"])
def either(request: pytest.FixtureRequest) -> RecordColumns:
    made = columns()
    return made if request.param == "lists" else RecordColumns.of(made.to_arrow())


def test_both_forms_have_the_same_records(either: RecordColumns) -> None:
    assert either.lists() == LISTS
    batch = either.to_arrow()
    assert batch.schema.equals(PAGE_SCHEMA)
    assert batch.drop_columns(["approximateArrivalTimestamp"]).to_pydict() == {
        "sequenceNumber": NUMBERS,
        "partitionKey": KEYS,
        "data": DATA,
    }
    first = either.part(0, 2)
    assert (first.number_at(-1), first.last_arrival_ms()) == ("2", 2_000)
    assert first.lists() == LISTS.part(0, 2)
    assert (first.payload_bytes, first.to_arrow().num_rows) == (1, 2)
    assert either.any_begins_with(b"\xf3\x89\x9a\xc2")
    assert not either.any_begins_with(b"rest")
    assert either.payload_bytes == sum(map(len, DATA))
    assert either.nbytes >= either.read_bytes > either.payload_bytes


@pytest.mark.parametrize(
    "data", [[b"x" * 600, b"", b"y" * 700], [b"x" * 600, None, b"y"], [None, b"x" * 600]]
)
def test_long_payloads_are_the_same_as_arrow(data: list[bytes | None]) -> None:
    """They are joined, unless one is missing."""
    made = RecordColumns(["1"] * len(data), [None] * len(data), data, pa.nulls(len(data)))
    made.arrivals = made.arrivals.cast(ARRIVAL_TYPE)
    records = made.to_arrow()
    records.validate(full=True)
    assert records.column("data").to_pylist() == data
    assert made.payload_bytes == sum(len(one) for one in data if one)


def test_a_missing_arrival_is_zero_in_lists_and_null_in_arrow() -> None:
    """The spout needs times; a missing one must not keep a record from being acked."""
    made = RecordColumns(
        ["1", "2"], [None, "k"], [None, b"x"], pa.array([None, 5_000], ARRIVAL_TYPE)
    )
    assert made.lists() == RecordLists(["1", "2"], [None, "k"], [None, b"x"], [0, 5])
    assert made.payload_bytes == 1
    assert made.to_arrow().to_pylist()[0] == {
        "sequenceNumber": "1",
        "partitionKey": None,
        "data": None,
        "approximateArrivalTimestamp": None,
    }
