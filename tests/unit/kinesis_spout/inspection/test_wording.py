"""Texts hide nothing."""

from __future__ import annotations

import sys
import unicodedata

from kinesis_spout.inspection.wording import visible


def test_no_character_is_unseen_and_what_is_seen_stays() -> None:
    """Controls, formats, surrogates and separators of lines get an escape, all that Unicode has."""
    hidden = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and visible(char) == char
    ]
    assert hidden == []
    seen = "Zürich 東京 שלום नमस्ते e\u0301 & <b> \"' 😀 → ✓"
    assert visible(seen) == seen
