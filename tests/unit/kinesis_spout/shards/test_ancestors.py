"""Which shards have ancestors with unresolved records."""

from __future__ import annotations

from kinesis_spout.shards.ancestors import unresolved_ancestors
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord

ONE = UnresolvedRecord(first=SequenceNumber(1), last=SequenceNumber(1), attempts=1, due_ms=0)


def states(**parents: str) -> dict[str, ShardState]:
    """By name, a shard's parents. A name in capitals has an unresolved record."""
    return {
        shard: ShardState(
            shard_id=shard,
            read_position=TRIM_HORIZON,
            parents=tuple(named),
            unresolved=(ONE,) if shard.isupper() else (),
        )
        for shard, named in parents.items()
    }


def test_a_shard_waits_for_the_unresolved_records_of_ancestors_of_every_generation() -> None:
    """A split, a split again, and a merge."""
    found = unresolved_ancestors(states(A="", b="A", c="A", D="b", e="b", f="cD", g="e"))
    assert {shard: set(ancestors) for shard, ancestors in found.items()} == {
        "b": {"A"},
        "c": {"A"},
        "D": {"A"},
        "e": {"A"},
        "f": {"A", "D"},
        "g": {"A"},
    }
    assert unresolved_ancestors(states(a="", b="a", c="A", D="")) == {}
    circle = unresolved_ancestors(states(A="b", b="A", c="b"))
    assert circle == {"b": ("A",), "c": ("A",)}, "no shard waits for itself"
