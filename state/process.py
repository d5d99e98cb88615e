"""The identity of this process, and whether the process that holds an ownership is provably dead:
a successor under the same kernel and in the same pid namespace can see that, and need not wait
until the holder's ZooKeeper session expires.
"""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from state.store.ownership import OwnerInfo, ProcessState

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
# The states (proc(5)) of a process that has ended. A zombie, which nobody has waited for yet, runs
# no more than a process that is gone.
_ENDED = {"Z", "X"}
_STOPPED = {"T", "t"}
_MAX_PARENTS = 3  # Spark may have a daemon between its JVM and a worker


def this_process(now_ms: int) -> OwnerInfo:
    """An `OwnerInfo` of this process, as owner since `now_ms` (milliseconds since 1970)."""
    return OwnerInfo(
        host=socket.gethostname(),
        pid=os.getpid(),
        since_ms=now_ms,
        host_identity=host_identity(),
        process_start=process_start(os.getpid()) or "",
    )


def host_identity() -> str:
    """Boot id, pid namespace and host name on Linux. Empty elsewhere: nothing is as reliable."""
    try:
        boot = _BOOT_ID.read_text().strip()
        namespace = _PID_NAMESPACE.readlink().name
    except OSError:
        return ""
    return f"{boot}/{namespace}/{socket.gethostname()}"


def process_start(pid: int) -> str | None:
    """The start time of a running process, in the kernel's ticks since boot (proc(5), field 22 of
    /proc/<pid>/stat). None if the process has ended or is not visible.
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] in _ENDED else fields[19]


def is_of_this_host(holder: OwnerInfo) -> bool:
    """Whether the holder runs, or ran, under this kernel and in this pid namespace."""
    return bool(holder.host_identity) and holder.host_identity == host_identity()


def is_provably_dead(holder: OwnerInfo) -> bool:
    """Whether this process can see that the holder's process has ended. False if in doubt."""
    return state_of(holder) is ProcessState.GONE


def state_of(owner: OwnerInfo) -> ProcessState | None:
    """The state of the owner's process; None for one of another machine or container, and where the
    system does not tell. Reads /proc.
    """
    if not is_of_this_host(owner):
        return None
    try:
        # /proc may hide the processes of other users. This call does not: it fails with EPERM.
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return ProcessState.GONE
    except OSError:
        pass
    fields = _stat(owner.pid)
    if fields is None:
        return None
    if fields[0] in _ENDED or (owner.process_start and fields[19] != owner.process_start):
        return ProcessState.GONE
    return ProcessState.STOPPED if fields[0] in _STOPPED else ProcessState.RUNS


def stopped_jvm(owner: OwnerInfo) -> int | None:
    """The pid of the JVM that has started the owner's process, if it is stopped: the Python process
    of a Spark driver continues beside it, and keeps the session. None in doubt. Reads /proc.
    """
    if state_of(owner) is not ProcessState.RUNS:
        return None
    jvm = next(filter(_is_jvm, islice(_parents(owner.pid), _MAX_PARENTS)), None)
    fields = None if jvm is None else _stat(jvm)
    return jvm if fields is not None and fields[0] in _STOPPED else None


def is_below(owner: OwnerInfo, driver_pid: int) -> bool:
    """Whether the owner's process was started by a Spark driver's Python process, or by the JVM
    that has started that one. Reads /proc.
    """
    parent = next(_parents(driver_pid), 0)
    above = {driver_pid, parent} if _is_jvm(parent) else {driver_pid}
    parents = islice(_parents(owner.pid), _MAX_PARENTS + 1)
    return any(pid in above for pid in chain([owner.pid], parents))


def _parents(pid: int) -> Iterator[int]:
    """The process's parent, its parent, and so on."""
    while (fields := _stat(pid)) is not None and (pid := int(fields[1])):
        yield pid


def _is_jvm(pid: int) -> bool:
    try:
        return pid > 1 and Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def describe(holder: OwnerInfo) -> str:
    """`process 123 on host-a, since 2026-01-31T12:00:00Z`."""
    since = datetime.fromtimestamp(holder.since_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
    return f"process {holder.pid} on {holder.host}, since {since}"


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from field 3 (the state) on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # Field 2 is the process's name in parentheses, which may itself hold spaces and parentheses.
    return text.rpartition(")")[2].split()
