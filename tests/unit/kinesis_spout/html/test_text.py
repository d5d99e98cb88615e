"""Texts are cut visibly, hide nothing, and name counts and durations as people do."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from kinesis_spout.html.text import cut, seconds, visible


def test_no_character_is_unseen() -> None:
    """Controls, formats, surrogates and separators of lines get an escape, all that Unicode has."""
    hidden = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and visible(char) == char
    ]
    assert hidden == []


def test_a_cut_text_says_how_much_is_missing() -> None:
    assert cut("x" * 100) == "x" * 100
    assert cut("x" * 10_000, 3) == "xxx… (9,997 more characters)"


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (12_000, "3 h 20 min"),
    ],
)
def test_durations_have_the_unit_that_reads_best(s: float, text: str) -> None:
    assert seconds(s) == text
