"""The grammar of positions and sequence numbers. That each is read back from its text, and that
numbers are ordered, is shown in the property tests.
"""

from __future__ import annotations

import pytest

from state.errors import InvalidPositionError, InvalidSequenceNumberError
from state.position import Position, StartingPosition
from state.sequence_number import SequenceNumber

NOW_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.0019Z", 1),
        ("1969-12-31T23:59:59.999Z", -1),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_an_iso_time_is_milliseconds_since_1970_utc(text: str, timestamp_ms: int) -> None:
    """Without a zone it is UTC, whatever the machine's zone is. Fractions of a millisecond are cut
    off.
    """
    assert Position.parse(text).timestamp_ms == timestamp_ms


@pytest.mark.parametrize("timestamp_ms", [-62_135_596_800_001, 253_402_300_800_000])
def test_a_time_outside_the_years_1_to_9999_is_refused(timestamp_ms: int) -> None:
    """It has no text in the grammar."""
    with pytest.raises(InvalidPositionError, match="outside the years 1 to 9999"):
        Position.at_timestamp(timestamp_ms)


@pytest.mark.parametrize(
    ("typed", "pinned"),
    [
        (" LATEST ", "2026-01-31T12:00:00.000Z"),
        ("-90s", "2026-01-31T11:58:30.000Z"),
        ("-5m", "2026-01-31T11:55:00.000Z"),
        ("-2h", "2026-01-31T10:00:00.000Z"),
        ("-1d", "2026-01-30T12:00:00.000Z"),
        ("TRIM_HORIZON", "TRIM_HORIZON"),
        ("AT:5", "AT:5"),
        ("2026-01-01", "2026-01-01T00:00:00.000Z"),
    ],
)
def test_a_starting_position_is_pinned_to_a_position(typed: str, pinned: str) -> None:
    """LATEST becomes the time of pinning. A text that is a position already stays the same."""
    assert str(StartingPosition.parse(typed).pin(NOW_MS)) == pinned


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        *(
            (typed, "is not a position; use LATEST, -2h, TRIM_HORIZON")
            for typed in ("latest", "-2w", "2h", "-1.5h", "", "AT:x")
        ),
        ("-36501d", "'-36501d' is further back than any stream"),
        ("SHARD_END", "only when the shard has been read to its end"),
    ],
)
def test_a_start_outside_the_grammar_is_refused_with_what_is_allowed(typed: str, says: str) -> None:
    """Before any record is read."""
    with pytest.raises(InvalidPositionError, match=says):
        StartingPosition.parse(typed)


def test_a_number_whose_text_could_not_be_read_back_is_refused() -> None:
    """Otherwise it would be detected only when it is read from the store. A sub-sequence number of
    0 is not written. A forgotten parse is an error, not an order.
    """
    for sequence, sub in ((-1, 0), (0, -1), (10**129, 0), (0, 10**10)):
        with pytest.raises(InvalidSequenceNumberError):
            SequenceNumber(sequence, sub)
    assert str(SequenceNumber.parse("7.0")) == "7"
    with pytest.raises(TypeError):
        assert SequenceNumber(7) < 8  # type: ignore[operator]  # that this is an error is what is tested
