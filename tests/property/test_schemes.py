"""For any bytes both halves of a scheme agree, and values written as JSON come back."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheme import KPL_MAGIC, JsonScheme, RawScheme, TextScheme, is_kpl_aggregate
from tests.support.outcomes.scheme_agreement import columns, decoded, disagreements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = JsonScheme(
    "b BOOLEAN, t TINYINT, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(12,4), s STRING, bin "
    "BINARY, day DATE, at TIMESTAMP, "
    "wall TIMESTAMP_NTZ, a ARRAY<DOUBLE>, m MAP<STRING, ARRAY<INT>>, "
    "o STRUCT<x: INT NOT NULL, s: STRING, r: ARRAY<STRUCT<d: DOUBLE>>>"
)
NAMES = [*SCHEME.fields, "B", "unknown", ""]

any_text = st.text(max_size=8)
numbers = st.one_of(
    st.integers(-300, 300),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.floats(width=32),
    st.decimals(-(10**9), 10**9, places=4).map(float),
)
fractions = st.sampled_from(["", "7", "789", "7890"])  # of a microsecond, as Go and Java write them
times = st.tuples(st.datetimes(), fractions).map(lambda each: each[0].isoformat() + each[1])
zoned = st.tuples(times, st.sampled_from(["", "Z", "+02:00", "-11:30", " UTC"])).map("".join)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    any_text,
    zoned,
    st.dates().map(str),
    st.binary(max_size=6).map(lambda b: b.hex()),
    st.just("AAE="),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["x", "s", "r", "d", "k"]), inner, max_size=3),
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
ascii_or_not = st.booleans()
texts = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only), objects, ascii_or_not
)
# One edit turns valid JSON into nearly valid JSON.
edited = st.builds(
    lambda text, at, cut, new: (
        text[: at % (len(text) + 1)] + new + text[at % (len(text) + 1) + cut :]
    ),
    texts,
    st.integers(0, 1000),
    st.integers(0, 2),
    st.one_of(
        st.sampled_from([*"[]{},:\"'\\ \t\n0159.-+eENu/x", "\\ud800", "\\u0000", "null", "\x00"]),
        any_text,
    ),
)
literals = st.from_regex(r"-?[0-9]{1,45}(\.[0-9]{1,45})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
written_numbers = st.builds(
    lambda name, number: f'{{"{name}": {number}}}',
    st.sampled_from(["t", "i", "l", "f", "d", "n", "s"]),
    literals,
)
escapes = st.lists(
    st.sampled_from(
        ["\\", "\\\\", "\\u", "d800", "dc00", "D83D", "0041", "\\ud83d\\ude00", "\\n", "x"]
    ),
    max_size=6,
).map("".join)
written_strings = st.builds(lambda text: f'{{"s": "{text}"}}', escapes)
encodable = st.one_of(texts, edited, written_numbers, written_strings).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
aggregates = st.binary(max_size=30).map(
    lambda body: KPL_MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest()
)
payloads = st.one_of(
    encodable, encodable, encodable, st.binary(max_size=30), any_text.map(str.encode), aggregates
)


many_payloads = st.lists(payloads, min_size=150, max_size=200)


@pytest.mark.spark
@settings(max_examples=settings().max_examples // 50, suppress_health_check=list(HealthCheck))
@given(many_payloads)
def test_python_and_spark_agree_about_any_payloads(spark: SparkSession, found: list[bytes]) -> None:
    """Value by value, class by class, reason by reason: for JSON, nearly valid JSON, text and
    noise. A Spark job is large, so there are fewer of them; the first example is the simplest.
    """
    for scheme in (SCHEME, TextScheme()):
        assert disagreements(scheme, found, columns(spark, scheme, found)) == []


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


@given(
    objects,
    st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])).filter(
        lambda text: text.strip(" \t\r\n")
    ),
)
def test_text_behind_the_value_is_malformed(members: dict[str, Any], more: str) -> None:
    assert decoded(SCHEME, _written(members) + more.encode())[0] is None


@given(st.binary(min_size=1), st.integers(0))
def test_an_aggregate_with_one_bit_turned_is_data(body: bytes, bit: int) -> None:
    """The checksum decides, not the magic number alone."""
    aggregate = bytearray(KPL_MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest())
    assert is_kpl_aggregate(bytes(aggregate))
    at = bit % (len(aggregate) * 8)
    aggregate[at // 8] ^= 1 << at % 8
    assert not is_kpl_aggregate(bytes(aggregate))
