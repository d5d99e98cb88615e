"""Both halves of JsonScheme agree on every value in every type, and texts that Spark alone would
accept wrongly are malformed. Any bytes, with every scheme: `tests/contract/test_schemes.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheme import JsonScheme, RawScheme, TextScheme, parsed
from tests.support.outcomes.scheme_agreement import columns, disagreements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from scheme import RecordScheme

pytestmark = pytest.mark.spark

DDL = (
    "id BIGINT, i INT, sm SMALLINT, t TINYINT, s STRING, b BOOLEAN, f FLOAT, d DOUBLE, dec "
    "DECIMAL(5,2), big DECIMAL(38,10), "
    "bin BINARY, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, "
    "a ARRAY<INT>, m MAP<STRING, BIGINT>, o STRUCT<total: DOUBLE, `x.y z`: STRING>, "
    "rows ARRAY<STRUCT<n: INT NOT NULL, tags: ARRAY<STRING>>>, mm MAP<STRING, STRUCT<p: INT, q: "
    "STRING>>"
)
JSON = JsonScheme(DDL)


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = [
    *words("0 -0 1 -1 127 128 -128 -129 32767 32768 2147483647 2147483648 -2147483649"),
    *words("9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809"),
    *("1" * 38, "1" * 39, "9" * 400, "1" * 1000, "1" * 1001, "-" + "1" * 1000),
    *words("1.0 1.5 -0.0 -0e0 0.1 1.1 1.10 1.234 1.2300 999.99 1000.00 1e2 1E+2 1e-2"),
    *words("1e999 -1e999 1e-999 1e39 4.9e-324 2e-324 1.401298464324817e-45 7e-46"),
    *words("3.4028234663852886e38 3.4028235677973366e38 3.4028235677973362e38"),
    *words("1.7976931348623157e308 1.7976931348623159e308 16777217 9007199254740993"),
    *words("0.30000000000000004 12345678901234567890.12345 0.0000000001 0.00000000001"),
    "123456789012345678901234567.8901234567",
    "9" * 28 + "." + "9" * 10,
    *("0." + "0" * 37 + "1", "0." + "0" * 38 + "1", "1." + "0" * 38, "1." + "0" * 36),
    *("0." + "1" * 1000, "0." + "1" * 1001, "5." + "1" * 999, "5." + "1" * 1000),
    *words("01 +1 1. .5 - 0x10 1_000 NaN Infinity -Infinity --1 1e 1e+ 1f 00"),
]
STRINGS = [
    *("", " ", "AA E=", "2020-01-01\\n", "2020-01-01 "),
    *words("x 1 1.5 true null NaN Infinity -INF AAE= AAE AB== A=== =AAA AAEC\\n zz! -_-_"),
    *words("2020-01-01 2020-1-1 2020-02-30 2020-02-29 2021-02-29 0000-01-01 0001-01-01"),
    *words("9999-12-31 10000-01-01 +2020-01-01 1582-10-10 2020-13-01 20200101 2020-W01-1"),
    *("2020-01-01 00:00:00", "2020-01-01T00:00:00 UTC"),
    *words("2020-01-01T00:00:00Z 2020-01-01T00:00:00 2020-01-01T00:00:00.123456+02:00"),
    *words("2020-01-01T00:00:00.1234567Z 1960-01-01T00:00:00.123456789+02:00"),
    *words("9999-12-31T23:59:59.999999999Z 2020-01-01T00:00:00.999999999"),
    *words("0001-01-01T00:00:00.000000999 2020-01-01T00:00:00.1234567890Z"),
    *words("2020-01-01T24:00:00Z 2020-01-01T23:59:60Z 2020-01-01T00:00:00+18:00"),
    *words("2020-01-01T00:00:00-17:59 2020-01-01T00:00:00+0200 0001-01-01T00:00:00+01:00"),
    *words("0001-01-01T00:00:00Z 9999-12-31T23:59:59.999999Z 9999-12-31T23:59:59-01:00"),
    *words("2020-01-01T00:00Z 2020-01-01T00:00:00.1Z 2020-01-01T00:00:00.Z"),
    *words("2020-01-01t00:00:00z 1883-11-18T12:00:00.5 0001-01-01T00:00:00.000001"),
    *words(r"\u0000 \ud83d\ude00 \ud800 \udc00\ud800 \uD83D\\uDE00 \\ud800 \\\ud800"),
    *words(r"\u12 \u12g4 \x41 \/ \' \ufffd"),
    *("a\tb", "a\x00b", "\x7f", "\N{LINE SEPARATOR}", "\N{GRINNING FACE}", "\ufeff"),
]
COMPOSITES = words(
    r"""
    null true false tru [] {} [1,null] [1,"x"] [1,2,] [[1]] {"a":1} {"a":null}
    {"a":"x","b":{}} {"a":1,"a":1}
    """
)
TEXTS = [
    *words(
        r"""
        null true 5 "s" [] [{"id":1}] {} {"id":1}{"id":2} {"id":1},{"id":2} {"id":1},5 {"id":1}]
        {"id":1}} {"id":1}, { } {'id':1} {id:1} {"id":1,} {,"id":1} /*c*/{"id":1} {"id":1}//c
        {"ID":1} {"Id":1,"id":2} {"id":1,"id":2} {"id":"x","id":2} {"id":1,"\u0069d":2}
        {"\u0069d":7} {"u":{"a":1,"a":2}} {"u":[{"a":1,"a":2}]} {"u":"\ud800"} {"\ud800":1}
        {"\udc00":1} {"u":"\x"} {"u":tru} {"u":NaN} {"u":-Infinity} {"u":1e999999999}
        {"u":1e99999999999999999999} {"m":{"":1,"\u0000":2,"\ud83d\ude00":3,"\uffff":4}}
        {"m":{"\ud800":1}} {"m":{"b":1,"a":2}} {"m":{"b":"x","a":2}}
        {"mm":{"\uffff":{"p":"x"},"\ud83d\ude00":{"q":1}}}
        {"mm":{"z":{"p":1,"q":"y","r":0},"y":null}} {"mm":{"z":[]}} {"o":{"total":"x"}}
        {"o":{"total":null}} {"o":{"Total":1}} {"o":null}
        {"rows":[{"n":1,"tags":["a",null]},{"n":2}]} {"rows":[{"n":null}]} {"rows":[{}]}
        {"rows":[null]} {"rows":[{"n":1,"tags":[1]}]} {"rows":[{"n":"x"}]}
        {"rows":[{"n":1},{"n":"x"},{}]} {"rows":{"n":1}} {"i":"x","t":999} {"t":999,"i":"x"}
        """
    ),
    *(
        "",
        " ",
        "\n\t\r ",
        ' {"id":1} \n',
        '{"id":1}\x0c',
        '\xa0{"id":1}',
        "\ufeff{}",
        "\ufeff",
        '{"id":1} xyz',
        '{"id":1}] 5',
        '{"id":1}\x00',
        "\x00{}",
        '{"id" 1}',
        '{"id":1 "i":2}',
        '#c\n{"id":1}',
        '{"o":{"total":1,"x.y z":"v"}}',
        '{"o":{"x":{"y z":"v"}}}',
    ),
    *(
        '{"u":' + "[" * depth + "]" * depth + "}"
        for depth in (50, 98, 99, 100, 101, 500, 997, 998, 999, 1500, 50_000)
    ),
    *('{"u":' + '{"k":' * depth + "1" + "}" * depth + "}" for depth in (98, 99, 100)),
    *(
        '{"u":' + "[" * 200,
        '{"u":"' + "[" * 200 + '"}',
        '{"u":"' + '\\"[{' * 200 + '"}',
        '{"u":[' + "[]," * 200 + "[]]}",
    ),
    *(
        '{"' + "k" * 50_000 + '":1}',
        '{"' + "k" * 50_001 + '":1}',
        '{"s":"' + "long " * 50_000 + '"}',
    ),
    *('{"u":' + number + "}" for number in NUMBERS),
]


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession) -> list[tuple[bytes, tuple[Any, str | None]]]:
    """Payloads, and what Spark makes of them: each number, string and composite as each of the
    schema's types, and whole texts: valid JSON, nearly valid, or not JSON.
    """
    values = [*NUMBERS, *COMPOSITES, *(f'"{text}"' for text in STRINGS)]
    payloads = [
        *(f'{{"{name}": {value}}}'.encode() for name in JSON.fields for value in values),
        *(text.encode() for text in TEXTS),
    ]
    return list(zip(payloads, columns(spark, JSON, payloads), strict=True))


def test_both_halves_agree_about_every_value_in_every_type(
    on_spark: list[tuple[bytes, tuple[Any, str | None]]],
) -> None:
    assert disagreements(JSON, *zip(*on_spark, strict=True)) == []


def test_ansi_mode_time_zone_and_the_default_type_of_times_change_nothing(
    spark: SparkSession, on_spark: list[tuple[bytes, tuple[Any, str | None]]]
) -> None:
    """No setting of the session changes the meaning of a payload, and none makes a bad record fail
    the query.
    """
    # New York's year 0 cannot be collected.
    expected = [one for one in on_spark if b"0001-01-01T" not in one[0]]
    ansi = str(spark.conf.get("spark.sql.ansi.enabled"))
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        spark.conf.set("spark.sql.ansi.enabled", "false" if ansi == "true" else "true")
        spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
        found = columns(spark, JSON, [payload for payload, _ in expected])
        assert repr(found) == repr([found for _, found in expected])
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        spark.conf.unset("spark.sql.timestampType")


@pytest.mark.parametrize("scheme", [RawScheme(), TextScheme(), JSON], ids=["raw", "text", "json"])
def test_the_plan_of_a_column_runs_no_python(spark: SparkSession, scheme: RecordScheme) -> None:
    data = spark.createDataFrame([(bytearray(b"x"),)], "data BINARY")
    # Printing is the only public way to the plan's text.
    plan = parsed(data, scheme)._jdf.queryExecution().executedPlan().toString()
    assert "python" not in plan.lower()
