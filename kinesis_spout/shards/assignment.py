"""Dividing shards among tasks. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = re.compile(r"[0-9]+\Z")


def assign(shards: Sequence[str], tasks: int) -> list[tuple[str, ...]]:
    """Groups of shard ids: at most `tasks` groups, none empty, their sizes at most one apart.

    The ids are assigned to the groups in turn, in sorted order. So the order of the argument does
    not matter, and neighbours, such as the children of one split, get different groups.
    """
    if tasks < 1:
        raise ValueError(f"shards cannot be divided among {tasks} tasks; use one or more")
    ordered = sorted(set(shards))
    return [tuple(ordered[first::tasks]) for first in range(min(tasks, len(ordered)))]


def task_of(shard_id: str, total_tasks: int) -> int:
    """The index of the task that a shard is assigned to, of `total_tasks` that run concurrently: by
    the shard's number modulo the number of tasks.

    The service numbers shards in the order of their creation, so in a fresh stream each task gets
    the shards that `assign` would give it. When shards come and go, no other shard changes its
    task. An id that does not end with a number is assigned by its checksum.
    """
    number = _NUMBER.search(shard_id)
    place = int(number[0]) if number else crc32(shard_id.encode())
    return place % total_tasks


def is_ours(shard_id: str, task_index: int, total_tasks: int) -> bool:
    """Whether a shard is assigned to this task (`task_of`)."""
    return task_of(shard_id, total_tasks) == task_index
