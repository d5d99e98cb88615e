"""Reasons that a user's code gives: each becomes a text that UTF-8 can encode, and none raises."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import described, reason_text, text_of
from tests.support.outcomes.odd_errors import ODD_ERRORS, Unprintable


@pytest.mark.parametrize("error", ODD_ERRORS, ids=lambda one: type(one).__name__)
def test_any_error_has_a_description_that_can_be_stored(error: BaseException) -> None:
    found = described(error)
    assert found.startswith(text_of(type(error).__name__))
    assert len(found.encode()) <= 4_000
    assert "\0" not in found


def test_an_error_whose_text_cannot_be_made_is_named() -> None:
    assert described(Unprintable()) == "Unprintable: its text cannot be made: RuntimeError"


def test_an_error_without_a_message_is_its_class() -> None:
    assert described(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("half \ud83d", "half \\ud83d"),
        ("a\0b\x1b[31m", "a\\x00b\\x1b[31m"),
        ("two\nlines\tand é", "two\nlines\tand é"),
        (404, "404"),
        (b"bytes", "b'bytes'"),
        ({"code": 1}, "{'code': 1}"),
        ("", ""),
    ],
)
def test_a_reason_of_any_kind_is_a_text(reason: object, text: str) -> None:
    assert reason_text(reason) == text


def test_a_reason_that_is_too_long_is_cut() -> None:
    assert reason_text("x" * 10_000_000) == "x" * 997 + "..."
    assert len(text_of("\ud800" * 10_000, 300)) == 300


def test_no_reason_stays_none() -> None:
    assert reason_text(None) is None


def test_an_interrupt_during_the_text_is_no_text() -> None:
    class Interrupting:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        text_of(Interrupting())
