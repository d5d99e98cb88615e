"""Texts that people read, with no character unseen."""

from __future__ import annotations

import re

# Controls, formats (bidirectional overrides, zero widths, soft hyphens, tags), separators of lines,
# surrogates and what Unicode says is no character. A terminal hides them, reorders the text around
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


def visible(text: str) -> str:
    r"""The text with an escape (`\x00`, `\n`, `\u202e`) for each character that is not seen."""
    return _UNSEEN.sub(lambda found: ascii(found.group())[1:-1], text)
