"""Texts that people read: values cut to a length, counts, times, and no character unseen."""

from __future__ import annotations

import re

# Controls, formats (bidirectional overrides, zero widths, soft hyphens, tags), separators of lines,
# surrogates and what Unicode says is no character. A browser hides them, reorders the text around
# them, or reads them as something else; an encoder refuses some.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f\u1160"
    "\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-"
    "\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|["
    + "".join(
        f"{chr(plane * 0x10000 + 0xFFFE)}-{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(1, 17)
    )
    + "]"
)
_MINUTE_S, _HOUR_S = 60, 3600


def visible(text: str) -> str:
    r"""The text with an escape (`\x00`, `\n`, `\u202e`) for each character that is not seen."""
    return _UNSEEN.sub(lambda found: ascii(found.group())[1:-1], text)


def cut(text: str, max_chars: int = 100) -> str:
    """The text, or its beginning and how much was left out."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}… ({count(len(text) - max_chars)} more characters)"


def count(number: int) -> str:
    """12,345"""
    return f"{number:,}"


def plural(number: int, one: str, more: str = "") -> str:
    """1 shard, 12,345 shards"""
    return f"{count(number)} {one if number == 1 else more or one + 's'}"


def seconds(s: float) -> str:
    """A duration in the unit that reads best: 12 ms, 1.4 s, 2 min 05 s, 3 h 20 min."""
    if abs(s) < 0.9995:
        return f"{s * 1000:.0f} ms"
    if abs(s) < _MINUTE_S - 0.05:
        return f"{s:.1f} s"
    whole = round(s)
    if abs(whole) < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02} min"
