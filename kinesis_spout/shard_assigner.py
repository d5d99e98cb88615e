"""Dividing shards among tasks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def assign(shards: Sequence[str], tasks: int) -> list[tuple[str, ...]]:
    """Groups of shard ids, at most `tasks` of them, none empty, their sizes at most one apart.

    The ids are dealt out in sorted order, one to each group in turn, so the same set of shards gives the same groups
    whatever order it comes in, and neighbours, such as the children of one split, land in different groups.
    """
    if tasks < 1:
        raise ValueError(f"shards cannot be divided among {tasks} tasks; use one or more")
    ordered = sorted(set(shards))
    return [tuple(ordered[first::tasks]) for first in range(min(tasks, len(ordered)))]
