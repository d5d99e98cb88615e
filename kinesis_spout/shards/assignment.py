"""Dividing shards among tasks. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = re.compile(r"[0-9]+\Z")


def assign(shards: Sequence[str], tasks: int) -> list[tuple[str, ...]]:
    """Groups of shard ids, at most `tasks` of them, none empty, their sizes at most one apart.

    The ids are dealt out in sorted order, one to each group in turn, so the same set of shards
    gives the same groups whatever order it comes in, and neighbours, such as the children of one
    split, land in different groups.
    """
    if tasks < 1:
        raise ValueError(f"shards cannot be divided among {tasks} tasks; use one or more")
    ordered = sorted(set(shards))
    return [tuple(ordered[first::tasks]) for first in range(min(tasks, len(ordered)))]


def is_ours(shard_id: str, task_index: int, total_tasks: int) -> bool:
    """Whether a shard is that task's, of so many that run side by side: every n-th of the stream's
    shards, by their numbers.

    Shards are numbered in the order of their making, so of a fresh stream each task gets what
    `assign` would give it; and when shards come and go, none of the others changes hands. An id
    that does not end with a number is placed by its checksum.
    """
    number = _NUMBER.search(shard_id)
    place = int(number[0]) if number else crc32(shard_id.encode())
    return place % total_tasks == task_index
