"""Values written as JSON come back, and any bytes are data or malformed. That Spark agrees, value
by value: `tests/integration/source/test_scheme_columns.py`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheme import KPL_MAGIC, JsonScheme, RawScheme, TextScheme, is_kpl_aggregate
from tests.support.outcomes.scheme_agreement import decoded

SCHEME = JsonScheme(
    "b BOOLEAN, t TINYINT, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(12,4), s STRING, bin "
    "BINARY, day DATE, at TIMESTAMP, "
    "wall TIMESTAMP_NTZ, a ARRAY<DOUBLE>, m MAP<STRING, ARRAY<INT>>, "
    "o STRUCT<x: INT NOT NULL, s: STRING, r: ARRAY<STRUCT<d: DOUBLE>>>"
)


def _written(members: dict[str, Any]) -> bytes:
    return json.dumps(members).encode()


@given(
    st.fixed_dictionaries(
        {
            "l": st.integers(-(1 << 63), (1 << 63) - 1),
            "d": st.floats(allow_nan=False, allow_infinity=False),
            "s": st.text(),
            "b": st.booleans(),
            "a": st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.none()),
        }
    )
)
def test_what_fits_comes_back_as_it_was_written(members: dict[str, Any]) -> None:
    """A value in the range of its type is neither changed nor lost."""
    value, malformed = decoded(SCHEME, _written(members))
    assert malformed is None
    assert {
        name: got for name, got in zip(SCHEME.fields, value, strict=True) if got is not None
    } == members


@given(st.binary())
def test_any_bytes_are_data_or_malformed_and_nothing_else(data: bytes) -> None:
    """No payload makes `decode` raise anything but a malformed record, and no reason is empty."""
    for scheme in (SCHEME, TextScheme(), RawScheme()):
        value, malformed = decoded(scheme, data)
        assert (value is None) == bool(malformed)


@given(st.binary(min_size=1), st.integers(0))
def test_an_aggregate_with_one_bit_turned_is_data(body: bytes, bit: int) -> None:
    """The checksum decides, not the magic number alone."""
    aggregate = bytearray(KPL_MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest())
    assert is_kpl_aggregate(bytes(aggregate))
    at = bit % (len(aggregate) * 8)
    aggregate[at // 8] ^= 1 << at % 8
    assert not is_kpl_aggregate(bytes(aggregate))
