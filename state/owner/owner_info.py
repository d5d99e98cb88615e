"""The process that owns an application, or a share of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class OwnerInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The process that holds the ownership, for the error that another consumer gets.

    `host_identity` identifies the kernel and the pid namespace. A successor with the same one can
    see from `pid` and `process_start` (the process's start in the kernel's ticks) that the holder
    is dead. It need not wait for the holder's session to expire.
    """

    host: str
    pid: int
    since_ms: int
    host_identity: str = ""
    process_start: str = ""


class Sight(StrEnum):
    """How its machine sees the process. `STOPPED`: by SIGSTOP, a terminal or a debugger."""

    RUNS = "runs"
    STOPPED = "stopped"
    GONE = "gone"
