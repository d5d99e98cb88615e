"""Reads a task's log in both of its formats. `state.codec.values.encode` writes the newest one."""

from __future__ import annotations

from state.codec.values import decode, stored_format
from state.plan import PLAN_FORMAT, TaskResult
from state.task_log import LOG_FORMAT, TaskLog


def decode_log(data: bytes, path: str) -> TaskLog:
    """The log in `data`. Format 1 was the whole result of a task, written once.

    Raises `StoredDataError` for damaged bytes and for a newer format.
    """
    if stored_format(data, TaskLog, path, newest=LOG_FORMAT) == PLAN_FORMAT:
        return TaskLog(entries=decode(data, TaskResult, path).shards, sealed=True)
    return decode(data, TaskLog, path, newest_format=LOG_FORMAT)
