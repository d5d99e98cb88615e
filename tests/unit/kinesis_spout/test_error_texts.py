"""Reasons that a user's code gives: each becomes a text that UTF-8 can encode, and none raises."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import described, reason_text, text_of
from tests.support.outcomes.odd_errors import ODD_ERRORS, Unprintable


@pytest.mark.parametrize("error", ODD_ERRORS, ids=lambda one: type(one).__name__)
def test_any_error_has_a_description_that_can_be_stored(error: BaseException) -> None:
    assert described(Unprintable()) == "Unprintable: its text cannot be made: RuntimeError"
    assert described(ValueError()) == "ValueError"
    found = described(error)
    assert found.startswith(text_of(type(error).__name__))
    assert len(found.encode()) <= 4_000
    assert "\0" not in found


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
        ("x" * 10_000_000, "x" * 997 + "..."),
        (None, None),
    ],
)
def test_a_reason_of_any_kind_is_a_text(reason: object, text: str | None) -> None:
    assert reason_text(reason) == text


def test_an_interrupt_during_the_text_is_no_text() -> None:
    class Interrupting:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        text_of(Interrupting())
