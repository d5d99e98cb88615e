"""Processes that we started, with all of their descendants: stopped, resumed and killed."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable

_LIMIT_S = 30.0
_LOOK_S = 0.02


def kill_family(process: subprocess.Popen[Any]) -> int:
    """Send kill -9 to a process that we started and to its descendants, and return their number.

    A Spark job has a JVM and Python workers. Signals go to process ids, never to a group. Blocks
    until all have ended. Idempotent: returns 0 once the process has ended, since its descendants
    can no longer be found then.
    """
    if process.poll() is not None:
        return 0
    root = psutil.Process(process.pid)
    members = [root]
    # Suspended before any is killed, so that none can start another process meanwhile.
    suspend([root])
    while fresh := [child for child in root.children(recursive=True) if child not in members]:
        suspend(fresh)
        members += fresh
    for member in members:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait(timeout=_LIMIT_S)
    deadline = time.monotonic() + _LIMIT_S
    left = members[1:]
    while (left := [member for member in left if runs(member)]) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=_LOOK_S)
    return len(members)


def descendants(pid: int) -> list[psutil.Process]:
    """The processes below it; none once it has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def suspend(members: Iterable[psutil.Process]) -> None:
    """Stop them. Those that have ended are left out."""
    for member in members:
        with suppress(psutil.NoSuchProcess):
            member.suspend()


def resume(members: Iterable[psutil.Process]) -> None:
    """Let stopped processes continue. Those that have ended are left out."""
    for member in members:
        with suppress(psutil.NoSuchProcess):
            member.resume()


def runs(process: psutil.Process) -> bool:
    """Whether the process runs. A zombie does not: it has ended, but its parent has not waited for
    it, as process 1 of a container rarely does.
    """
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
