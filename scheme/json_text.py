"""Parses one JSON text in Python as strictly as Spark's VARIANT does.

Some texts that a JSON parser may accept (RFC 8259) are refused, because Python or Spark would lose
or change a part of them silently: a duplicate key in an object, a lone surrogate, NaN and Infinity,
more than 100 levels, and numbers of more than 1000 digits.
"""

from __future__ import annotations

import json
import re
from typing import Any

from scheme.json_rules import JACKSON_MAX_NAME_CHARS, JACKSON_MAX_NUMBER_DIGITS, MAX_DEPTH

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class NotJsonError(ValueError):
    """The text is not JSON, or JSON that is refused here."""


class Fraction(str):
    """The text of a number that has a point or an exponent. Its class distinguishes it from a
    string.
    """

    __slots__ = ()


def read_json(text: str) -> Any:
    """The value: dict, list, str, bool, None, int, or `Fraction`. Raises `NotJsonError`, which does
    not have the text in it.
    """
    if _deeper_than_allowed(text):
        raise NotJsonError
    try:
        value = _DECODER.decode(text)
        # Only an escape can bring in a lone surrogate; encoding the value then fails.
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, UnicodeEncodeError):
        raise NotJsonError from None
    return value


def _deeper_than_allowed(text: str) -> bool:
    """Before parsing, because Python's parser would run out of stack."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    for char in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if char in "[{" else -1
        deepest = max(deepest, depth)
    return deepest > MAX_DEPTH


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs) or any(len(name) > JACKSON_MAX_NAME_CHARS for name in members):
        raise NotJsonError
    return members


def _integer(token: str) -> int:
    if (
        len(token) > JACKSON_MAX_NUMBER_DIGITS
        and len(token.lstrip("-")) > JACKSON_MAX_NUMBER_DIGITS
    ):
        raise NotJsonError
    return int(token)


def _fraction(token: str) -> Fraction:
    if len(token) > JACKSON_MAX_NUMBER_DIGITS and _digits(token) > JACKSON_MAX_NUMBER_DIGITS:
        raise NotJsonError
    return Fraction(token)


def _digits(token: str) -> int:
    # Jackson does not count a leading zero before the point.
    return sum(char.isdigit() for char in token) - token.lstrip("-").startswith("0")


def _constant(_token: str) -> None:
    raise NotJsonError


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_fraction,
    parse_constant=_constant,
    strict=True,
)
