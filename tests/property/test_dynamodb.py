"""Changes of DynamoDB that are read a column at a time have the outcomes of each."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheme import DynamoDbScheme
from scheme.payload_scheme import PayloadScheme

SCHEME = DynamoDbScheme(
    "id STRING NOT NULL, `a.b c` INT, total DECIMAL(12,2), ratio FLOAT, size DOUBLE, ok BOOLEAN, "
    "raw BINARY, day DATE, at TIMESTAMP, tags ARRAY<STRING>, sums ARRAY<DECIMAL(5,1)>, "
    "deep ARRAY<ARRAY<BIGINT>>, named MAP<STRING, ARRAY<STRING>>, "
    "inner STRUCT<x: STRING NOT NULL, y: STRUCT<z: TINYINT>>"
)
NUMBERS = (
    *("0", "-0", "1", "-3.10", "12.5", "127", "128", "007", "999999999999", "16777217"),
    *("0.001", "1E3", "1e-3", "3.4E+38", "9" * 38, "1.", "+4", "", "x"),
)
TEXTS = ("", "a", "Zürich", "2020-01-01", "2020-02-30", "2020-01-01T00:00:00.123456789+02:00")


ODD: list[Any] = [
    *({"NULL": False}, {}, {"S": "a", "N": "1"}, {"S": "a", "NULL": False}, None, 5, {"Q": ""}),
    *({"N": "1", "NULL": True}, {"L": [], "SS": ["a"]}, {"SS": ["a"], "NULL": False}),
]


def attribute(kind: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly as DynamoDB writes it."""
    odd = [*ODD, {kind: None}]
    regular = values.map(lambda value: {kind: value})
    return st.integers(0, 9).flatmap(
        lambda n: st.sampled_from(odd) if n == 9 else st.just({"NULL": True}) if n == 8 else regular
    )


def lists(kind: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.lists(attribute(kind, values), max_size=3)
    return attribute("L", members) | attribute(f"{kind}S", st.lists(values, max_size=3))


texts, numbers = st.sampled_from(TEXTS), st.sampled_from(NUMBERS)
items = st.fixed_dictionaries(
    {"id": attribute("S", texts)},
    optional={
        "a.b c": attribute("N", st.sampled_from(["1", "7", "1.0", "2147483648"])),
        "total": attribute("N", numbers),
        "ratio": attribute("N", numbers),
        "size": attribute("N", numbers),
        "ok": attribute("BOOL", st.booleans()),
        "raw": attribute("B", st.sampled_from(["", "aGk=", "aGk"])),
        "day": attribute("S", texts),
        "at": attribute("S", texts),
        "tags": lists("S", texts),
        "sums": lists("N", st.sampled_from(["1", "2.5", "0.25"])),
        "deep": attribute("L", st.lists(lists("N", st.just("1")), max_size=2)),
        "named": attribute("M", st.dictionaries(st.text(max_size=2), lists("S", texts))),
        "inner": attribute(
            "M",
            st.fixed_dictionaries(
                {},
                optional={
                    "x": attribute("S", texts),
                    "y": attribute("M", st.just({"z": {"N": "5"}})),
                    "not named": attribute("S", texts),
                },
            ),
        ),
        "not named": attribute("S", texts),
    },
)
plain = st.fixed_dictionaries(
    {"id": st.just({"S": "a"})},
    optional={
        "total": st.sampled_from(["1", "-2.50"]).map(lambda text: {"N": text}),
        "tags": st.just({"SS": ["a", "b"]}),
        "inner": st.just({"M": {"x": {"S": "a"}}}),
    },
)


def written(new: Any, old: Any, time: int) -> bytes:
    change = {
        "ApproximateCreationDateTime": time,
        "Keys": {"id": new["id"]},
        "NewImage": new,
        "OldImage": old,
    }
    record = {"eventID": "0", "eventName": "MODIFY", "tableName": "t", "dynamodb": change}
    return json.dumps(record).encode()


times = st.sampled_from([1_720_740_233_012, 1_720_740_233_012_345, 1_720_740_233_012, -(10**18)])


def is_alike(scheme: DynamoDbScheme, array: pa.Array) -> bool:
    together = [one for part in scheme.outcomes(array) for one in part.to_pylist()]
    alone = [one for part in PayloadScheme.outcomes(scheme, array) for one in part.to_pylist()]
    return repr(together) == repr(alone)


@pytest.mark.parametrize("scheme", [SCHEME, DynamoDbScheme()], ids=["ddl", "texts"])
@given(st.lists(st.builds(written, plain | items, st.none() | plain | items, times), max_size=40))
def test_changes_together_have_the_outcomes_of_each(
    scheme: DynamoDbScheme, payloads: list[bytes]
) -> None:
    """Values, their order, and the reasons."""
    assert is_alike(scheme, pa.array([*payloads, None, b"{}"], pa.binary()))


@pytest.mark.parametrize("scale", [0, 20, 21, 30, 38])
def test_a_number_with_more_digits_than_its_decimal_is_never_another_number(scale: int) -> None:
    """Arrow's cast does not see that the number overflows 128 bits."""
    scheme = DynamoDbScheme(f"id STRING NOT NULL, total DECIMAL(38,{scale})")
    for number in ("7", "0.5", "-3.25", "1234567890123", "123456789012345678.123456789012345678"):
        change = written({"id": {"S": "a"}, "total": {"N": number}}, None, 0)
        assert is_alike(scheme, pa.array([change], pa.binary())), number


def test_an_attribute_that_is_none_is_malformed_beside_good_ones() -> None:
    """Of each type, also where it is the only one of many."""
    good = written({"id": {"S": "a"}, "total": {"N": "1"}}, None, 0)
    for name in ("id", "total", "tags", "inner", "named"):
        for odd in ODD:
            found = written({"id": {"S": "a"}, name: odd}, None, 0)
            array = pa.array([good] * 20 + [found] + [good] * 20, pa.binary())
            reasons = [
                one["malformed"] for part in SCHEME.outcomes(array) for one in part.to_pylist()
            ]
            assert reasons[20] is not None
            assert reasons[:20] + reasons[21:] == [None] * 40
