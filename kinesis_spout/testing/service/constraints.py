"""The bounds of request members, from the API reference. A violation is a ValidationException."""

from __future__ import annotations

import re
from typing import TypeVar

from kinesis_spout.testing.errors import invalid_argument, validation

Value = TypeVar("Value")

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
_HASH_KEY = re.compile(r"0|[1-9][0-9]{0,38}", re.ASCII)
_SEQUENCE_NUMBER = re.compile(r"0|[1-9][0-9]{0,128}", re.ASCII)


def needed(field: str, value: Value | None) -> Value:
    if value is None:
        raise validation(field, None, "Member must not be null")
    return value


def name(field: str, value: str | None) -> str:
    """Check the name of a stream or consumer, or the id of a shard."""
    return _matching(_NAME, field, value)


def hash_key_text(field: str, value: str | None) -> int:
    number = int(_matching(_HASH_KEY, field, value))
    if number >= 2**128:
        raise invalid_argument(
            f"Invalid {field}. {field} must be in the range: [0, 2^128-1]. Specified value was "
            f"{number}"
        )
    return number


def sequence_number_text(field: str, value: str | None) -> int:
    return int(_matching(_SEQUENCE_NUMBER, field, value))


def one_of(field: str, value: str | None, allowed: tuple[str, ...]) -> str:
    text = needed(field, value)
    if text not in allowed:
        raise validation(field, text, f"Member must satisfy enum value set: [{', '.join(allowed)}]")
    return text


def number(field: str, value: int | None, *, low: int, high: int | None = None) -> int:
    count = needed(field, value)
    if count < low:
        raise validation(field, count, f"Member must have value greater than or equal to {low}")
    if high is not None and count > high:
        raise validation(field, count, f"Member must have value less than or equal to {high}")
    return count


def limit(field: str, value: int | None, *, default: int) -> int:
    """How many items an answer may have: 1 to 10,000."""
    return number(field, default if value is None else value, low=1, high=10_000)


def partition_key(value: str | None, *, is_optional: bool) -> str | None:
    """Check a partition key: 1 to 256 Unicode characters."""
    if value is None and is_optional:
        return None
    text = needed("partitionKey", value)
    if not 1 <= len(text) <= 256:
        raise validation("partitionKey", text, "Member must have length between 1 and 256")
    return text


def _matching(pattern: re.Pattern[str], field: str, value: str | None) -> str:
    text = needed(field, value)
    if not pattern.fullmatch(text):
        raise validation(
            field, text, f"Member must satisfy regular expression pattern: {pattern.pattern}"
        )
    return text
