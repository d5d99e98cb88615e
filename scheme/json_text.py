"""Reads one JSON text in Python as strictly as Spark's VARIANT does.

Beyond the JSON of RFC 8259 the following is refused, because it would be lost or changed silently
on one side: a key twice in one object, a surrogate without its partner, NaN and Infinity, more than
100 levels, numbers of more than 1000 digits.
"""

from __future__ import annotations

import json
import re
from typing import Any

from scheme.json_rules import JACKSON_MAX_NAME_CHARS, JACKSON_MAX_NUMBER_DIGITS, MAX_DEPTH

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class NotJsonError(ValueError):
    """The text is no JSON, or JSON outside of what is read here."""


class Fraction(str):
    """The text of a number that has a point or an exponent; told apart from a string by
    its class.
    """

    __slots__ = ()


def read_json(text: str) -> Any:
    """The value: dict, list, str, bool, None, `int`, or `Fraction`; raises `NotJsonError` without
    the text in it.
    """
    if _deeper_than_allowed(text):
        raise NotJsonError
    try:
        value = _DECODER.decode(text)
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, UnicodeEncodeError):
        raise NotJsonError from None
    return value


def _deeper_than_allowed(text: str) -> bool:
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
    # Jackson leaves a zero in front of the point out of its count.
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
