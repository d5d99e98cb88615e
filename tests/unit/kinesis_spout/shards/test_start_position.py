"""The position that a requested start is pinned to, and that it is pinned once."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import ConfigError
from kinesis_spout.shards.start_position import LATEST_MARGIN_MS, RequestedStart, pin_start, pinned
from state.memory_store import MemoryBackend, MemoryStateStore
from state.position import TRIM_HORIZON, Position, StartingPosition
from state.sequence_number import SequenceNumber

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def requested(text: str, **shards: str) -> RequestedStart:
    return RequestedStart(
        default=StartingPosition.parse(text),
        shards=tuple((shard, StartingPosition.parse(each)) for shard, each in shards.items()),
    )


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("TRIM_HORIZON", TRIM_HORIZON),
        ("LATEST", Position.at_timestamp(NOW_MS - LATEST_MARGIN_MS)),
        ("-2h", Position.at_timestamp(NOW_MS - 7_200_000)),
        ("-0s", Position.at_timestamp(NOW_MS)),
        ("2025-12-31T12:00:00Z", Position.at_timestamp(NOW_MS - 43_200_000)),
        ("AT:42", Position.at(SequenceNumber(42))),
        ("AFTER:42", Position.after(SequenceNumber(42))),
    ],
)
def test_a_requested_start_is_a_position_at_the_time_of_the_pin(
    text: str, position: Position
) -> None:
    """LATEST is a little before now: the service's time is known to the second only, and no record
    may be skipped.
    """
    assert pinned(StartingPosition.parse(text), NOW_MS) == position


def test_a_pin_has_its_time_the_requested_start_and_the_listed_shards() -> None:
    pin = pin_start(MemoryStateStore(), requested("LATEST", a="AFTER:7"), NOW_MS, ["a", "b"])
    assert (pin.time_ms, pin.shards, pin.position) == (
        NOW_MS,
        ("a", "b"),
        Position.at_timestamp(NOW_MS - LATEST_MARGIN_MS),
    )
    assert pin.shard_positions == {"a": Position.after(SequenceNumber(7))}
    assert pin.wish == '{"default": "LATEST", "a": "AFTER:7"}'


@pytest.mark.parametrize("where", ["default", "shard"])
def test_a_start_in_the_future_is_refused_and_nothing_is_pinned(where: str) -> None:
    """The service would refuse it at every read, and a pin is never replaced."""
    backend = MemoryBackend()
    future = "2026-01-01T00:00:03Z"
    wanted = requested(future) if where == "default" else requested("LATEST", a=future)
    with pytest.raises(ConfigError, match=r"startingPosition.*in the future.*use LATEST"):
        pin_start(MemoryStateStore(backend), wanted, NOW_MS, ["a"])
    assert MemoryStateStore(backend).read_start() is None


def test_a_start_that_is_the_services_time_is_not_refused() -> None:
    """Its clock is known to the second only."""
    pin = pin_start(MemoryStateStore(), requested("2026-01-01T00:00:01Z"), NOW_MS, ["a"])
    assert pin.position == Position.at_timestamp(NOW_MS + 1_000)


def test_a_start_for_a_shard_that_is_not_listed_is_refused_and_nothing_is_pinned() -> None:
    """A misspelt shard would silently start at the default."""
    backend = MemoryBackend()
    with pytest.raises(
        ConfigError, match=r"startingPosition names shard 'shard-O1'.*did you mean shard-01\?"
    ):
        pin_start(
            MemoryStateStore(backend),
            requested("LATEST", **{"shard-O1": "TRIM_HORIZON"}),
            NOW_MS,
            ["shard-01", "shard-02"],
        )
    assert MemoryStateStore(backend).read_start() is None


def test_the_first_pin_holds_whatever_is_requested_later() -> None:
    backend = MemoryBackend()
    first = pin_start(MemoryStateStore(backend), requested("LATEST"), NOW_MS, ["a"])
    again = pin_start(
        MemoryStateStore(backend), requested("TRIM_HORIZON"), NOW_MS + 5_000, ["a", "b"]
    )
    assert again == first
    assert MemoryStateStore(backend).read_start() == first
