"""The rules of JsonScheme, record by record. That Spark follows them too is shown in the
integration and property tests.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from scheme import JsonScheme
from tests.support.outcomes.scheme_agreement import decoded

NOT_JSON = "not valid JSON: one value, no key twice in an object, at most 100 levels deep"


def outcome(ddl: str, text: str) -> Any:
    """The only field's value, or the reason."""
    value, malformed = decoded(JsonScheme(ddl), text.encode())
    return malformed if value is None else value[0]


@pytest.mark.parametrize(
    ("ddl", "text", "value"),
    [
        ("v BOOLEAN", "true", True),
        ("v TINYINT", "-128", -128),
        ("v BIGINT", "9223372036854775807", 9223372036854775807),
        ("v DOUBLE", "1e-999", 0.0),
        ("v FLOAT", "1.1", 1.100000023841858),
        ("v DECIMAL(5,2)", "1.2300", Decimal("1.23")),
        ("v STRING", '"\\ud83d\\ude00\\u0000"', "\N{GRINNING FACE}\x00"),
        ("v BINARY", '"AAE="', b"\x00\x01"),
        ("v DATE", '"2020-02-29"', date(2020, 2, 29)),
        (
            "v TIMESTAMP",
            '"2020-01-01 01:00:00.5+02:00"',
            datetime(2019, 12, 31, 23, 0, 0, 500_000, tzinfo=UTC),
        ),
        (
            "v TIMESTAMP_NTZ",
            '"9999-12-31T23:59:59.9999999"',
            datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001  # a wall-clock time has no zone
        ),
        ("v ARRAY<INT>", "[1,null]", [1, None]),
        ("v MAP<STRING, INT>", '{"b":1,"a":null}', {"a": None, "b": 1}),
        ("v STRUCT<x: INT, y: INT>", '{"x":1,"z":2}', {"x": 1, "y": None}),
        ("v INT", "null", None),
    ],
)
def test_a_value_must_have_the_json_type_of_its_field(ddl: str, text: str, value: Any) -> None:
    """Each type accepts the values that it holds without loss; a floating type rounds to the
    nearest, and a time is cut to its microsecond.
    """
    got = outcome(ddl, f'{{"v":{text}}}')
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        *(("v TINYINT", text) for text in ("128", "1.0", "1e2", '"1"', "true", "[]")),
        *(("v DOUBLE", text) for text in ("1e999", '"NaN"', "true")),
        *(("v FLOAT", text) for text in ("1e39", "3.4028235677973366e38")),
        *(("v DECIMAL(5,2)", text) for text in ("1.234", "1000", "1e1", '"1.23"')),
        *(("v STRING", text) for text in ("5", "true", "{}", "[]")),
        *(("v BINARY", text) for text in ('"AAE"', '"zz!"', '"A==="')),
        *(("v DATE", text) for text in ('"2020-02-30"', '"2020-1-1"', "18000", '"0000-01-01"')),
        *(("v TIMESTAMP", text) for text in ('"2020-01-01T00:00:00"', '"2020-01-01"', "0")),
        ("v TIMESTAMP", '"0001-01-01T00:00:00+01:00"'),
        ("v TIMESTAMP_NTZ", '"2020-01-01T00:00:00Z"'),
        ("v BOOLEAN", "1"),
        ("v STRUCT<x: INT>", "[]"),
        ("v ARRAY<INT>", "{}"),
        ("v MAP<STRING, INT>", "[]"),
    ],
)
def test_no_value_is_converted_rounded_or_wrapped_around(ddl: str, text: str) -> None:
    """A value that Spark's own from_json would turn into a null, another number or a text is
    malformed, and the reason names the field.
    """
    assert str(outcome(ddl, f'{{"v":{text}}}')).startswith("field 'v' is not a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"o":{"t":"x"}}', "field 'o.t' is not a DOUBLE"),
        ('{"a":[{"n":1},{"n":"x"}]}', "field 'a[].n' is not an INT"),
        ('{"m":{"k":"secret"}}', "field 'm{}' is not a BIGINT"),
        ('{"a":[{"N":1}]}', "field 'a[].n' is missing"),
        ('{"a":[{"n":null}]}', "field 'a[].n' is missing"),
        ('{"o":5}', "field 'o' is not a STRUCT<`t`: DOUBLE>"),
        ("[]", "the JSON is not an object"),
        ("null", "the JSON is not an object"),
    ],
)
def test_the_reason_names_the_first_field_that_does_not_fit(text: str, reason: str) -> None:
    """Its path comes from the schema: it has neither keys of a map nor values of the payload. A
    field in another case is missing.
    """
    scheme = JsonScheme(
        "o STRUCT<t: DOUBLE>, a ARRAY<STRUCT<n: INT NOT NULL>>, m MAP<STRING, BIGINT>"
    )
    assert decoded(scheme, text.encode()) == (None, reason)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"v":1}{"v":2}',
        "{'v':1}",
        '{"v":1,"v":2}',
        "\ufeff{}",
        '{"u":NaN}',
        '{"u":"\\ud800"}',
    ],
)
def test_text_that_is_not_one_strict_json_value_is_malformed(text: str) -> None:
    """Also if the fields of the schema could be read from it."""
    assert outcome("v INT", text) == NOT_JSON


def test_a_hundred_levels_are_read_and_one_more_is_malformed() -> None:
    """Brackets within strings do not count."""
    assert outcome("v INT", '{"v":1,"u":' + "[" * 99 + "]" * 99 + "}") == 1
    assert outcome("v INT", '{"v":1,"u":' + "[" * 100 + "]" * 100 + "}") == NOT_JSON
    assert outcome("v INT", '{"v":1,"u":"' + '\\"[' * 5000 + '"}') == 1
    assert outcome("v INT", "[" * 1_000_000) == NOT_JSON
