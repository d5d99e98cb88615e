"""Where each listed shard is read, from where another consumer stands: a test for each row."""

from __future__ import annotations

import pytest

from kinesis_spout.checkpoints.migration.import_plan import positions
from kinesis_spout.checkpoints.migration.origin import MigrationError, Origin, OriginShard
from kinesis_spout.service.shard_info import ShardInfo
from state.position import Position
from state.sequence_number import SequenceNumber

AT = Position.parse("2026-01-31T12:00:00Z")


def shard(name: str, *parents: str, is_closed: bool = False) -> ShardInfo:
    return ShardInfo(
        shard_id=name,
        parents=parents,
        hash_key_range=(0, 1),
        starting_sequence=SequenceNumber(1),
        ending_sequence=SequenceNumber(9) if is_closed else None,
    )


def places(
    says: dict[str, str | None],
    *shards: ShardInfo,
    drops_finished: bool = False,
    at: Position | None = None,
) -> dict[str, str]:
    origin = Origin(
        name="other",
        shards={
            name: OriginShard(stored="", position=None if text is None else Position.parse(text))
            for name, text in says.items()
        },
        drops_finished=drops_finished,
    )
    listed = {one.shard_id: one for one in shards}
    return {one.shard.shard_id: str(one.position) for one in positions(origin, listed, at)}


LINE = (shard("a"), shard("b", "a"), shard("c", "b"))
MERGED = (shard("a"), shard("b"), shard("c", "a", "b"))


@pytest.mark.parametrize(
    ("says", "family", "found"),
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
    ],
)
def test_a_position_is_kept_and_a_child_of_a_named_shard_is_read_from_its_beginning(
    says: dict[str, str | None], family: tuple[ShardInfo, ...], found: dict[str, str]
) -> None:
    assert places(says, *family) == found


def test_a_shard_that_a_named_one_comes_from_is_done_where_such_shards_are_forgotten() -> None:
    assert places({"c": "AFTER:5"}, *LINE, drops_finished=True) == {
        "a": "SHARD_END",
        "b": "SHARD_END",
        "c": "AFTER:5",
    }
    with pytest.raises(MigrationError, match="has no position of a, b;"):
        places({"c": "AFTER:5"}, *LINE)


def test_an_open_shard_is_not_done() -> None:
    """It is of a stream that was created again under the name: nothing of it would ever be read.
    One whose children are listed is closed, whatever the list says of it.
    """
    with pytest.raises(MigrationError, match="other says that a is done, but it is open; this is"):
        places({"a": "SHARD_END"}, shard("a"))
    family = shard("a"), shard("b", "a")
    assert places({"a": "SHARD_END"}, *family) == {"a": "SHARD_END", "b": "TRIM_HORIZON"}


def test_of_a_shard_without_a_position_the_time_is_asked_for() -> None:
    """Also of one that has no relation to any."""
    both = (shard("a"), shard("b"))
    with pytest.raises(MigrationError, match="has no position of a, b; give --at"):
        places({"a": None}, *both)
    assert set(places({"a": None}, *both, at=AT).values()) == {str(AT)}
