"""Reasons, limits and forms that the two JSON readers, in Python and in Spark, have in common."""

from __future__ import annotations

NOT_JSON = "not valid JSON, or an object has a duplicate key, or the JSON has over 100 levels"
NOT_AN_OBJECT = "the JSON is not an object"

MAX_DEPTH = 100
"""Levels of nesting. Far below the depth at which Python's reader runs out of stack, and below
Jackson's limit of 1000.
"""

JACKSON_MAX_DEPTH = 1000
JACKSON_MAX_NUMBER_DIGITS = 1000
JACKSON_MAX_NAME_CHARS = 50_000
"""Jackson's limits (StreamReadConstraints). Spark does not read a text beyond them, so Python must
not either.

Within a few digits of the 1000, Jackson's count depends on how the number is written: it refuses
0.5 with a negative exponent of 999 digits, and accepts 5 with 999 digits after the point. There the
two readers may disagree on whether a text is JSON.
"""

MAX_EXACT_DIGITS = 38
"""A VARIANT's limit: a number with a point, or outside of BIGINT, is exact up to this number of
digits and of decimals.
"""

# These mean the same in Java's and in Python's regular expressions. Spark has a year 0000, Python
# does not.
DATE = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
# Of more than six decimals, both cut off what is below a microsecond.
TIME = "[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?"
ZONE = "(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])"
TEXT_FORMS = {
    "BINARY": "[A-Za-z0-9+/]*={0,2}",
    "DATE": DATE,
    "TIMESTAMP": f"{DATE}[T ]{TIME}{ZONE}",
    "TIMESTAMP_NTZ": f"{DATE}[T ]{TIME}",
}

FIRST_TIME_US = -62_135_596_800_000_000
LAST_TIME_US = 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds since 1970 UTC, which is the range of Python's datetime.
Spark has a wider range, but such rows could not be collected.
"""


def decimal_form(scale: int) -> str:
    """A number in plain notation with at most `scale` decimals, trailing zeros aside, so that it is
    never rounded.
    """
    return f"-?[0-9]+([.][0-9]{{0,{scale}}}0*)?"


def mismatch(path: str, ddl: str) -> str:
    """The reason for a value of another type. The path comes from the schema, never from the
    payload.
    """
    article = "an" if ddl[0] in "AEIOU" else "a"
    return f"field {path!r} is not {article} {ddl}"


def missing(path: str) -> str:
    return f"field {path!r} is missing"
