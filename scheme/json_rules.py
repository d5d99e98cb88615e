"""What both readers of JSON, the one in Python and the one on Spark, must say and measure alike."""

from __future__ import annotations

NOT_JSON = "not valid JSON: one value, no key twice in an object, at most 100 levels deep"
NOT_AN_OBJECT = "the JSON is not an object"

MAX_DEPTH = 100
"""Levels of nesting. Far below where Python's reader runs out of stack and Jackson refuses (1000).
"""

JACKSON_MAX_DEPTH = 1000
JACKSON_MAX_NUMBER_DIGITS = 1000
JACKSON_MAX_NAME_CHARS = 50_000
"""Jackson's limits (StreamReadConstraints): beyond them Spark reads nothing, so Python must not
either.

Within a few digits of the thousand Jackson's count depends on how the number is written (0.5 with a
negative exponent of 999 digits is refused, 5 with 999 digits behind the point is not); there the
two halves may differ about whether it is JSON.
"""

MAX_EXACT_DIGITS = 38
"""A number with a point, or outside of BIGINT, stays exact up to that many digits and decimals; a
VARIANT's limit.
"""

# Java's regular expressions and Python's read these alike. Year 0000 exists on Spark and not in
# Python.
DATE = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = "[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
ZONE = "(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])"
TEXT_FORMS = {
    "BINARY": "[A-Za-z0-9+/]*={0,2}",
    "DATE": DATE,
    "TIMESTAMP": f"{DATE}[T ]{TIME}{ZONE}",
    "TIMESTAMP_NTZ": f"{DATE}[T ]{TIME}",
}

FIRST_TIME_US = -62_135_596_800_000_000
LAST_TIME_US = 253_402_300_799_999_999
"""The years 1 to 9999 in microseconds since 1970 UTC: what Python can hold. Spark could go further,
and the rows could not be collected."""


def decimal_form(scale: int) -> str:
    """Plain notation with at most `scale` decimals beside trailing zeros: nothing is rounded."""
    return f"-?[0-9]+([.][0-9]{{0,{scale}}}0*)?"


def mismatch(path: str, ddl: str) -> str:
    """The reason for a value of another type. Paths come from the schema, never from
    the payload.
    """
    return f"field {path!r} is not {_article(ddl)} {ddl}"


def missing(path: str) -> str:
    return f"field {path!r} is missing"


def _article(word: str) -> str:
    return "an" if word[0] in "AEIOU" else "a"
