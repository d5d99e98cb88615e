"""Plans, and the logs in which their tasks publish what they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from state.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from state.plan import Plan, PlanPointer, TaskResult


class StoredLog(msgspec.Struct, frozen=True):
    """A task's log as it was read; `log` and `version` are None where there is none."""

    log: TaskLog | None
    version: int | None
    plan_is_open: bool


class TaskLogStore(Protocol):
    """The part of a task of a plan (an executor).

    Needs: a transaction of a compare-and-set and a check that the plan is open.
    """

    def read_log(self, plan_id: str, task: int) -> StoredLog:
        """The log of a task, and whether its plan is open. The read is linearizable: it sees every
        write that was answered before it. The plan is read before the log, so an open plan's log
        may be newer than that, and a closed plan's log is final.
        """

    def append_log(self, plan_id: str, task: int, log: TaskLog, version: int | None) -> int:
        """Replace the log that was read in `version` (None: there was none) by `log`, which
        continues it. Returns the new version.

        One transaction that also checks that the plan is open. Raises `PlanClosedError` when the
        plan is closed or unknown; then nothing is created, no parent node either. Raises
        `ConflictError` when the log has another version: another attempt has appended, or the
        answer to this very call was lost. Read the log again, and follow it. Raises `TaskLogError`
        when there was a log that somebody has removed: a second one might name other records than
        those that were handed over. Raises `StateTooLargeError`.
        """


class PlanReader(Protocol):
    """The part of a tracked batch, and of whoever only looks.

    Needs: plain reads alone.
    """

    def pointer(self) -> PlanPointer | None:
        """The newest plan's id and status, or None before the first plan."""

    def read(self, plan_id: str) -> Plan | None:
        """A whole plan; None for one that was never created, is half created, or was removed."""

    def read_results(self, plan_id: str) -> Mapping[int, TaskResult]:
        """What a plan's tasks have published: their folded logs, by task. Final after `close`."""

    def known(self) -> Sequence[str]:
        """The ids of all plans that the store still has, in the order of their numbers."""

    def removed_logs(self, plan_id: str) -> Sequence[int]:
        """The tasks of a plan whose logs were begun and are no longer there, in order: somebody has
        removed them. None of them can publish again (`TaskLogStore.append_log`).
        """


class PlanStore(PlanReader, TaskLogStore, Protocol):
    """The part of the owner.

    Needs: transactions of creations, and of a compare-and-set of the pointer with the fence.
    """

    def create(self, plan: Plan) -> None:
        """Create an open plan and make it the newest one. The plan before it is closed if it is
        still open, and can never be settled from then on.

        The number of the plan must be above that of every plan that the store knows; otherwise
        raises `ConflictError`. A large plan takes several transactions. It becomes visible as a
        whole in the last one, which also moves `/plan`.
        """

    def close(self, plan_id: str) -> None:
        """Close the newest plan: from then on no result and no report can be published under it.
        Idempotent. Raises `ConflictError` for another plan than the newest.
        """

    def mark_settled(self, plan_id: str) -> None:
        """Record that the outcomes of the newest plan, which is closed, are in the shard states.
        Idempotent. Raises `ConflictError` for a plan that is open or not the newest.
        """

    def remove(self, plan_id: str) -> None:
        """Remove a plan with all below it; a no-op if it is gone. ValueError for the newest."""
