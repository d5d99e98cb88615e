"""A task's log in the hands of one attempt, which appends to it, or follows another attempt that
was faster. `state.task_log` has the rules.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from state.codec.values import encode_unchecked
from state.errors import ConflictError, PlanClosedError, TaskLogError
from state.failpoint import failpoint
from state.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from state.plan import ShardReadResult
    from state.store.plans import StoredLog, TaskLogStore

log = logging.getLogger("kinesis_spout")


class TaskLogWriter:
    """The log of one task of a plan. For one thread. `open` and `append` block on ZooKeeper.

    - `log`: as it was read, appended or followed last.
    - `is_complete`: nothing will be appended any more.
    - `max_bytes`: a log of more bytes is too long.
    """

    def __init__(
        self, store: TaskLogStore, plan_id: str, task: int, stored: StoredLog, *, max_bytes: int
    ) -> None:
        self._store = store
        self._plan_id = plan_id
        self._task = task
        self._max_bytes = max_bytes
        self.log = TaskLog() if stored.log is None else stored.log
        self._version = stored.version
        # Nothing can be appended under a closed plan, so its log is complete as it is. Only at the
        # beginning: an attempt that was open to append may have been overtaken meanwhile.
        self.is_complete = self.log.sealed or not stored.plan_is_open
        self._cursor = 0  # entries that were handed over

    @classmethod
    def open(cls, store: TaskLogStore, plan_id: str, task: int, *, max_bytes: int) -> TaskLogWriter:
        """Read the log. Raises `PlanClosedError` where the plan was closed before anything was
        published.
        """
        stored = store.read_log(plan_id, task)
        if stored.log is None and not stored.plan_is_open:
            raise PlanClosedError(
                f"plan {plan_id} is closed or removed, and its task {task} has published nothing; "
                "its records are delivered again"
            )
        return cls(store, plan_id, task, stored, max_bytes=max_bytes)

    @property
    def is_new(self) -> bool:
        """Whether no attempt has published anything, as far as this one knows."""
        return self._version is None

    @property
    def shards_read(self) -> set[str]:
        """The shards with records in the log."""
        return {entry.shard_id for entry in self.log.entries if entry.count}

    @property
    def shards_ended(self) -> set[str]:
        """The shards whose end is in the log."""
        return {entry.shard_id for entry in self.log.entries if entry.at_shard_end}

    def pending(self) -> Iterator[ShardReadResult]:
        """The entries that were not handed over. One counts as handed over when the next one is
        asked for.
        """
        while self._cursor < len(self.log.entries):
            yield self.log.entries[self._cursor]
            self._cursor += 1

    def is_too_long(self, new: TaskLog) -> bool:
        return len(encode_unchecked(new)) > self._max_bytes

    def append(self, new: TaskLog) -> bool:
        """Write `new`, which extends the log. False where another attempt was faster: then the log
        is what that one has published.
        """
        try:
            self._version = self._store.append_log(self._plan_id, self._task, new, self._version)
        except ConflictError:
            self._follow()
            return False
        self.log, self.is_complete = new, new.sealed
        if new.sealed:
            failpoint("log-sealed")
        else:
            failpoint("log-appended")
        return True

    def _follow(self) -> None:
        """Take over the log as it is now."""
        stored = self._store.read_log(self._plan_id, self._task)
        current = TaskLog() if stored.log is None else stored.log
        if not stored.plan_is_open and not current.sealed:
            raise PlanClosedError(
                f"plan {self._plan_id} was closed while its task {self._task} was reading; its "
                "records are delivered again"
            )
        if not current.continues(self.log.entries[: self._cursor]):
            raise TaskLogError(
                f"the log of task {self._task} of plan {self._plan_id} was changed or removed "
                "while its rows were handed over",
                "run the batch again",
            )
        log.info(
            "task %d of plan %s: another attempt published its log first. This attempt reads the "
            "same records",
            self._task,
            self._plan_id,
        )
        self.log, self._version, self.is_complete = current, stored.version, current.sealed
