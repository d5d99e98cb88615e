"""Record by record: the rules of each scheme, malformed records, message ids, and the subset of
DDL. That Spark follows the rules of JsonScheme too is shown in the integration and property tests.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from scheme import (
    JsonScheme,
    SchemeDefinitionError,
)
from tests.support.outcomes.scheme_agreement import decoded, record_of


def test_a_record_shows_neither_its_payload_nor_its_key() -> None:
    assert "secret" not in repr(dataclasses.replace(record_of(b"secret"), partition_key="secret"))


def test_the_message_id_names_shard_sequence_and_attempt() -> None:
    """Its grammar is `shardId:sequence[.sub]:attempt`; a sub-sequence number of 0 is left out."""
    record = record_of(b"")
    start = f"shardId-000000000000:{record.sequence_number}"
    assert record.message_id == f"{start}:1"
    again = dataclasses.replace(record, attempt=3, sub_sequence_number=7)
    assert again.message_id == f"{start}.7:3"


NOT_JSON = "not valid JSON, or an object has a duplicate key, or the JSON has over 100 levels"


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
        ("v DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)),
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


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("id BIGINT", "`id` BIGINT"),
        (" id:long ,\n s : string NOT NULL", "`id` BIGINT, `s` STRING"),
        ("a byte, b short, c integer, d real", "`a` TINYINT, `b` SMALLINT, `c` INT, `d` FLOAT"),
        (
            "n DECIMAL, m dec(12), k numeric(38, 10)",
            "`n` DECIMAL(10,0), `m` DECIMAL(12,0), `k` DECIMAL(38,10)",
        ),
        ("o STRUCT<total: DOUBLE, u STRING>", "`o` STRUCT<`total`: DOUBLE, `u`: STRING>"),
        (
            "a ARRAY<ARRAY<INT>>, m MAP<STRING, STRUCT<x: DATE>>",
            "`a` ARRAY<ARRAY<INT>>, `m` MAP<STRING, STRUCT<`x`: DATE>>",
        ),
        ("`a.b c` INT, `tick``ed` INT", "`a.b c` INT, `tick``ed` INT"),
        ("date DATE, string STRING, not BOOLEAN", "`date` DATE, `string` STRING, `not` BOOLEAN"),
    ],
)
def test_a_schema_is_read_as_spark_would(written: str, read: str) -> None:
    """Synonyms, both forms of a field, nested types and quoted names. NOT NULL is a rule of the
    scheme and not part of the type.
    """
    assert JsonScheme(written).schema_ddl == read


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("", "found the end where a field name is expected"),
        ("id", "found the end where a type"),
        ("id VARIANT", "found 'VARIANT' where a type"),
        ("id INT COMMENT", "found 'COMMENT' where ',' or the end is expected"),
        ("id INT NOT", "found the end where 'NULL' is expected"),
        ("id INT; s INT", "found ';' where ',' or the end is expected"),
        ("a ARRAY<INT", "found the end where '>' is expected"),
        ("m MAP<INT, INT>", "found 'INT' where 'STRING' is expected"),
        ("o STRUCT<>", "found '>' where a field name is expected"),
        ("n DECIMAL(39, 2)", "use a precision from 1 to 38"),
        ("a INT, a INT", "'a' and 'a' are the same name"),
        ("o STRUCT<Id: INT, id: INT>", "'Id' and 'id' are the same name"),
    ],
)
def test_ddl_outside_the_subset_is_refused_in_one_sentence(written: str, complaint: str) -> None:
    """The error names the schema, the place and what is expected there."""
    with pytest.raises(SchemeDefinitionError) as caught:
        JsonScheme(written)
    assert complaint in str(caught.value)
    assert repr(written) in str(caught.value)
