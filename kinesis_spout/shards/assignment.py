"""Which task of several reads a shard. Pure."""

from __future__ import annotations

import re
from zlib import crc32

_NUMBER = re.compile(r"[0-9]+\Z")


def task_of(shard_id: str, total_tasks: int) -> int:
    """The index of the task that a shard is assigned to, of `total_tasks` that run concurrently: by
    the shard's number modulo the number of tasks.

    The service numbers shards in the order of their creation, so in a fresh stream each task gets
    as many, and the children of one split get different tasks. When shards come and go, no other
    shard changes its task. An id that does not end with a number is assigned by its checksum.
    """
    number = _NUMBER.search(shard_id)
    place = int(number[0]) if number else crc32(shard_id.encode())
    return place % total_tasks


def is_ours(shard_id: str, task_index: int, total_tasks: int) -> bool:
    """Whether a shard is assigned to this task (`task_of`)."""
    return task_of(shard_id, total_tasks) == task_index
