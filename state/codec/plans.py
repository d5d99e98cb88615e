"""A plan's header, and its tasks' logs in both of their formats. `state.codec.values.encode` writes
the newest one.
"""

from __future__ import annotations

import msgspec

from state.codec.values import decode, stored_format
from state.plan import PLAN_FORMAT, TaskResult
from state.task_log import LOG_FORMAT, TaskLog


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of `batches/<planId>`: a plan without its tasks, which are child nodes."""

    created_ms: int
    tasks: int
    until_ms: int | None = None
    outages: int = msgspec.field(default=0, name="storms")  # the name in ZooKeeper stays
    delivery_limit: int | None = None
    format: int = PLAN_FORMAT


def decode_log(data: bytes, path: str) -> TaskLog:
    """The log in `data`. Format 1 was the whole result of a task, written once.

    Raises `StoredDataError` for damaged bytes and for a newer format.
    """
    if stored_format(data, TaskLog, path, newest=LOG_FORMAT) == PLAN_FORMAT:
        return TaskLog(entries=decode(data, TaskResult, path).shards, sealed=True)
    return decode(data, TaskLog, path, newest_format=LOG_FORMAT)
