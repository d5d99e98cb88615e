"""Where each listed shard is read, by where another consumer has stopped: a test for each row."""

from __future__ import annotations

import pytest

from kinesis_spout.checkpoints.migration.import_plan import (
    MigrationError,
    Origin,
    OriginShard,
    positions,
)
from kinesis_spout.service.shard_info import HashRange, ShardInfo
from state.position import Position
from state.sequence_number import SequenceNumber

AT = Position.parse("2026-01-31T12:00:00Z")


def shard(name: str, *parents: str, is_closed: bool = False) -> ShardInfo:
    return ShardInfo(
        shard_id=name,
        parents=parents,
        hash_key_range=HashRange(0, 1),
        starting_sequence=SequenceNumber(1),
        ending_sequence=SequenceNumber(9) if is_closed else None,
    )


def places(
    stored: dict[str, str | None],
    *shards: ShardInfo,
    drops_finished: bool = False,
    at: Position | None = None,
) -> dict[str, str]:
    origin = Origin(
        name="other",
        shards={
            name: OriginShard(stored="", position=None if text is None else Position.parse(text))
            for name, text in stored.items()
        },
        drops_finished=drops_finished,
    )
    listed = {one.shard_id: one for one in shards}
    return {one.shard_id: str(place.position) for one, place in positions(origin, listed, at)}


LINE = (shard("a"), shard("b", "a"), shard("c", "b"))
MERGED = (shard("a"), shard("b"), shard("c", "a", "b"))
BOTH = (shard("a"), shard("b"))


@pytest.mark.parametrize(
    ("stored", "family", "found"),
    [
        (
            {"a": "AFTER:5", "b": "SHARD_END"},
            (shard("a"), shard("b", is_closed=True)),
            {"a": "AFTER:5", "b": "SHARD_END"},
        ),
        # of a named one, also over one that is not named, and where no position is named
        (
            {"a": "AFTER:5", "c": None},
            LINE,
            {"a": "AFTER:5", "b": "TRIM_HORIZON", "c": "TRIM_HORIZON"},
        ),
        # a parent need not be listed any more
        ({"a": "SHARD_END"}, LINE[1:2], {"b": "TRIM_HORIZON"}),
        # one parent was not begun, the other was
        (
            {"a": "SHARD_END", "b": "TRIM_HORIZON"},
            MERGED,
            {"a": "SHARD_END", "b": "TRIM_HORIZON", "c": "TRIM_HORIZON"},
        ),
        # whose children are listed is closed, whatever the list says of it
        ({"a": "SHARD_END"}, LINE[:2], {"a": "SHARD_END", "b": "TRIM_HORIZON"}),
    ],
)
def test_a_position_is_kept_and_a_child_of_a_named_shard_is_read_from_its_beginning(
    stored: dict[str, str | None], family: tuple[ShardInfo, ...], found: dict[str, str]
) -> None:
    assert places(stored, *family) == found


def test_a_shard_that_a_named_one_comes_from_is_done_where_such_shards_are_forgotten() -> None:
    found = places({"c": "AFTER:5"}, *LINE, drops_finished=True)
    assert found == {"a": "SHARD_END", "b": "SHARD_END", "c": "AFTER:5"}


@pytest.mark.parametrize(
    ("stored", "family", "error"),
    [
        ({"c": "AFTER:5"}, LINE, "has no position of a, b; pass "),
        ({"a": None}, BOTH, "has no position of a, b; pass "),
        # of a stream that was created again under the name: nothing of it would ever be read
        (
            {"a": "SHARD_END"},
            BOTH[:1],
            "says that a is read to its end, but the shard is open: the state",
        ),
    ],
)
def test_a_shard_without_a_position_and_an_open_one_that_is_done_are_refused(
    stored: dict[str, str | None], family: tuple[ShardInfo, ...], error: str
) -> None:
    with pytest.raises(MigrationError, match=error):
        places(stored, *family)


def test_a_shard_without_a_position_is_read_from_the_time_that_is_asked_for() -> None:
    assert set(places({"a": None}, *BOTH, at=AT).values()) == {str(AT)}
