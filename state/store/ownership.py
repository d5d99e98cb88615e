"""Who consumes an application: one process owns all of it, or each of several tasks a share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

from state.errors import InvalidStoreSettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TASKS = 1000
_SHARE = re.compile(r"(0|[1-9]\d*)-of-([1-9]\d*)")


class OwnerInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The process that holds the ownership, for the error that another consumer gets.

    `host_identity`: of the kernel and the pid namespace. A successor with the same one can see from
    `pid` and `process_start` (in the kernel's ticks) that the holder is dead (`state.process`).
    """

    host: str
    pid: int
    since_ms: int
    host_identity: str = ""
    process_start: str = ""


class ProcessState(StrEnum):
    """A process's state, as its machine sees it. `STOPPED`: by SIGSTOP, terminal or debugger."""

    RUNS = "runs"
    STOPPED = "stopped"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Task `index` of `total`, counted from 0. Its text, `1-of-3`, also names its znodes."""

    index: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.total <= MAX_TASKS:
            raise InvalidStoreSettingError(
                f"the total of {self.total} tasks is not allowed", f"use 1 to {MAX_TASKS}"
            )
        if not 0 <= self.index < self.total:
            raise InvalidStoreSettingError(
                f"the task index {self.index} does not exist among {self.total} tasks",
                f"use an index from 0 to {self.total - 1}",
            )

    @classmethod
    def parse(cls, text: str) -> TaskShare:
        """Read a text like `1-of-3`; raises `InvalidStoreSettingError` for any other."""
        written = _SHARE.fullmatch(text)
        if written is None:
            raise InvalidStoreSettingError(
                f"{text!r} is not the name of a task", "use the form 1-of-3"
            )
        return cls(int(written[1]), int(written[2]))

    def __str__(self) -> str:
        return f"{self.index}-of-{self.total}"

    @property
    def label(self) -> str:
        """`task 1 of 3`, for messages."""
        return f"task {self.index} of {self.total}"


@dataclass(frozen=True, slots=True)
class OwnerView:
    """A process that owns the application, or the share `task` of it."""

    task: TaskShare | None
    info: OwnerInfo


class OwnershipStore(Protocol):
    """The ownership of an application.

    Needs: an ephemeral owner, which ends with the session of the process; a transaction that counts
    up the epoch and creates the owner; a watch for the end of a holder's session; for
    `save_unclean_starts`, a compare-and-set with the owner's fence.
    """

    def acquire(self, owner: OwnerInfo, *, timeout_s: float, task: TaskShare | None = None) -> int:
        """Acquire the ownership of the whole application, or of one task's share, and return its
        new epoch. Idempotent while it is held.

        Waits up to `timeout_s` for the session of a conflicting holder to expire, but not for a
        holder that is provably dead (see `OwnerInfo`). Then raises `OwnedByAnotherError`, which
        names the holder. Every holder conflicts with an owner of the whole. A task conflicts with
        an owner of the whole, a holder of the same task, and every task of another total.

        If the session is lost and no other process has taken over since, the next write acquires
        the ownership again by itself, with the same epoch. Raises ValueError when this store
        already holds another share.
        """

    def release(self) -> None:
        """Give up the ownership; a no-op if this store does not hold it."""

    def holders(self) -> Mapping[TaskShare | None, OwnerInfo]:
        """The processes that hold the ownership now, by share, in order; by None the one that owns
        the whole application. Empty while nobody does.
        """

    def read_unclean_starts(self) -> int:
        """How many starts of this store's task in a row have not ended in order, as
        `save_unclean_starts` stored it; 0 before that, and after the number of tasks has changed.

        Raises `StaleOwnerError`, and ValueError for the owner of the whole application.
        """

    def save_unclean_starts(self, count: int) -> None:
        """Store that number. Raises what `read_unclean_starts` raises, and `ConflictError` when
        another program has changed it meanwhile.
        """
