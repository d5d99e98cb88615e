from __future__ import annotations

import copy
import pickle

import pytest

from state.errors import InvalidPositionError
from state.position import TRIM_HORIZON, Position, PositionKind, StartingPosition
from state.sequence_number import SequenceNumber

NOW_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 1_000),
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


@pytest.mark.parametrize(
    "text",
    [
        "LATEST",
        "-2h",
        "",
        "trim_horizon",
        " TRIM_HORIZON",
        "AT:",
        "AT:x",
        "AT:05",
        "BEFORE:5",
        "5",
        "soon",
    ],
)
def test_a_text_outside_the_grammar_is_refused(text: str) -> None:
    """Also LATEST and times ago, which are never stored."""
    with pytest.raises(InvalidPositionError, match="position"):
        Position.parse(text)


@pytest.mark.parametrize("timestamp_ms", [-62_135_596_800_001, 253_402_300_800_000, 10**20])
def test_a_time_outside_the_years_1_to_9999_is_refused(timestamp_ms: int) -> None:
    """It has no text in the grammar."""
    with pytest.raises(InvalidPositionError, match="outside the years 1 to 9999"):
        Position.at_timestamp(timestamp_ms)


def test_a_kind_takes_exactly_its_own_value() -> None:
    """AT and AFTER take a sequence number, a time its milliseconds, other positions nothing."""
    for kind in (PositionKind.AT, PositionKind.AFTER, PositionKind.AT_TIMESTAMP):
        with pytest.raises(InvalidPositionError):
            Position(kind)
    for kind in (PositionKind.TRIM_HORIZON, PositionKind.SHARD_END, PositionKind.AT_TIMESTAMP):
        with pytest.raises(InvalidPositionError):
            Position(kind, sequence=SequenceNumber(5))
    for kind in (PositionKind.TRIM_HORIZON, PositionKind.SHARD_END):
        with pytest.raises(InvalidPositionError):
            Position(kind, timestamp_ms=0)


def test_a_position_cannot_be_changed() -> None:
    """It is shared: TRIM_HORIZON is one object."""
    with pytest.raises(AttributeError, match="immutable"):
        TRIM_HORIZON.kind = PositionKind.SHARD_END
    with pytest.raises(AttributeError, match="immutable"):
        del TRIM_HORIZON.kind


@pytest.mark.parametrize("text", ["TRIM_HORIZON", "AFTER:5.2", "2013-01-01T05:17:00.123Z"])
def test_a_position_survives_pickling_and_copying(text: str) -> None:
    """It is sent to executors."""
    position = Position.parse(text)
    assert pickle.loads(pickle.dumps(position)) == position  # noqa: S301  # our own bytes
    assert copy.deepcopy(position) == position
    assert repr(position) == f"Position({text})"


@pytest.mark.parametrize(
    ("typed", "pinned"),
    [
        ("LATEST", "2026-01-31T12:00:00.000Z"),
        (" LATEST ", "2026-01-31T12:00:00.000Z"),
        ("-90s", "2026-01-31T11:58:30.000Z"),
        ("-5m", "2026-01-31T11:55:00.000Z"),
        ("-2h", "2026-01-31T10:00:00.000Z"),
        ("-1d", "2026-01-30T12:00:00.000Z"),
        ("-0s", "2026-01-31T12:00:00.000Z"),
        ("TRIM_HORIZON", "TRIM_HORIZON"),
        ("AT:5", "AT:5"),
        ("2026-01-01", "2026-01-01T00:00:00.000Z"),
    ],
)
def test_a_starting_position_is_pinned_to_a_position(typed: str, pinned: str) -> None:
    """LATEST becomes the time of pinning. A text that is a position already stays the same."""
    assert str(StartingPosition.parse(typed).pin(NOW_MS)) == pinned


@pytest.mark.parametrize("typed", ["latest", "-2w", "2h", "-h", "-1.5h", "", "AT:x"])
def test_a_start_outside_the_grammar_is_refused_with_what_is_allowed(typed: str) -> None:
    """Before any record is read."""
    with pytest.raises(
        InvalidPositionError, match="is not a starting position; use LATEST, -2h, TRIM_HORIZON"
    ):
        StartingPosition.parse(typed)


def test_a_time_before_all_streams_is_not_a_starting_position() -> None:
    """Pinned, it would be in no year that a position can name."""
    assert StartingPosition.parse("-36500d").ago_ms is not None
    with pytest.raises(InvalidPositionError, match="'-36501d' is longer ago than any stream"):
        StartingPosition.parse("-36501d")


def test_the_end_of_a_shard_is_not_a_starting_position() -> None:
    """No record would ever be read."""
    with pytest.raises(InvalidPositionError, match="nothing would ever be read"):
        StartingPosition.parse("SHARD_END")
