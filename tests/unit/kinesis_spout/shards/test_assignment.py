"""Shards are assigned to tasks evenly, and always in the same way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.shards.assignment import assign

SHARDS = st.lists(st.integers(0, 500).map("shardId-{:012}".format), unique=True)


@given(SHARDS, st.integers(1, 40))
def test_every_shard_is_in_one_group_and_the_groups_are_balanced(
    shards: list[str], tasks: int
) -> None:
    """None is lost or assigned twice, no group is empty, and each group is in order. Two listings
    of one stream give one plan.
    """
    groups = assign(shards, tasks)
    assert sorted(shard for group in groups for shard in group) == sorted(shards)
    assert len(groups) == min(tasks, len(shards))
    assert all(list(group) == sorted(group) for group in groups)
    sizes = [len(group) for group in groups] or [0]
    assert max(sizes) - min(sizes) <= 1
    assert assign(shards[::-1], tasks) == groups


def test_shards_are_assigned_in_turn() -> None:
    """Neighbours get different tasks."""
    assert assign(["d", "a", "c", "b", "e"], 2) == [("a", "c", "e"), ("b", "d")]
