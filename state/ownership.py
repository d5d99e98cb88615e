"""Who a process is, and whether the holder of an ownership is provably dead.

A dead holder's ephemeral node stays until its session lapses. A successor that runs under the same
kernel and in the same pid namespace can see for itself that the holder's process is gone, and need
not wait.
"""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from state.state_store import OwnerInfo

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_ENDED = {
    "Z",
    "X",
}  # a process that was killed and not yet waited for is as dead as one that is gone


def this_process(now_ms: int) -> OwnerInfo:
    """The owner that this process would be, from `now_ms` on (ms since 1970)."""
    pid = os.getpid()
    return OwnerInfo(
        host=socket.gethostname(),
        pid=pid,
        since_ms=now_ms,
        host_identity=host_identity(),
        process_start=process_start(pid) or "",
    )


def host_identity() -> str:
    """Boot id, pid namespace and host name on Linux; empty elsewhere, where nothing as firm is to
    be had.
    """
    try:
        boot = _BOOT_ID.read_text().strip()
        namespace = _PID_NAMESPACE.readlink().name
    except OSError:
        return ""
    return f"{boot}/{namespace}/{socket.gethostname()}"


def process_start(pid: int) -> str | None:
    """The start of a running process in the kernel's ticks since boot; None for one that is not
    seen, or has ended.

    Field 22 of /proc/<pid>/stat (proc(5)); the name in field 2 may hold spaces and parentheses.
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] in _ENDED else fields[19]


def is_provably_dead(holder: OwnerInfo) -> bool:
    """Whether it can be seen from here that the holder's process has ended. False when in doubt."""
    if not holder.host_identity or holder.host_identity != host_identity():
        return False
    try:
        os.kill(holder.pid, 0)  # /proc may hide the processes of other users, this call does not
    except ProcessLookupError:
        return True
    except OSError:
        pass
    fields = _stat(holder.pid)
    if fields is None:
        return False
    return fields[0] in _ENDED or (
        bool(holder.process_start) and fields[19] != holder.process_start
    )


def describe(holder: OwnerInfo) -> str:
    """`process 123 on host-a, since 2026-01-31T12:00:00Z`."""
    since = datetime.fromtimestamp(holder.since_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    return f"process {holder.pid} on {holder.host}, since {since}"


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the state (field 3) on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
