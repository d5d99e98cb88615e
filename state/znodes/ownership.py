"""The ownership of an application as znodes, and how a process waits for it. One process owns the
whole of it, or each of several tasks owns a share.

Whole. The node `owner` is ephemeral. Every new owner increments `epoch`.

Shares. The node `owner` is persistent and holds the number of tasks. `owner/1-of-3` is ephemeral,
and every new owner of that share increments `epoch/1-of-3`.

Changes. A process that changes from the one form to the other, or changes the number of tasks, does
three things in one transaction: it increments `epoch`; it creates `owner` again, which ZooKeeper
refuses while the old one has children, that is live tasks; and it removes the nodes below `epoch`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from state.codec.values import decode, encode
from state.errors import (
    InvalidStoreSettingError,
    OwnedByAnotherError,
    StateError,
    StoredDataError,
)
from state.process import describe, is_below, is_of_this_host, is_provably_dead
from state.store.ownership import OwnerInfo, OwnershipStore, TaskShare
from state.znodes.fence import Claim, Fence, Nodes
from state.znodes.paths import subject
from state.znodes.tree import (
    Check,
    Create,
    Delete,
    Operation,
    Refusal,
    TransactionRefusedError,
    Znode,
    commit_once,
    ensure,
    put,
    stands,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger("kinesis_spout")
_LOOK_S = 0.5  # between two looks at whether the holder's process lives


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who holds the application (`task` is None) or a share; `node` is its ephemeral node."""

    path: str
    node: Znode
    task: TaskShare | None
    info: OwnerInfo


class _Tasks(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `owner` while tasks share the application."""

    total_tasks: int
    format: int = 1


class OwnershipZnodes(Nodes, OwnershipStore):
    """An `OwnershipStore`."""

    def __init__(self, fence: Fence) -> None:
        super().__init__(fence)
        self._lock = threading.Lock()

    def acquire(
        self,
        owner: OwnerInfo,
        *,
        timeout_s: float,
        task: TaskShare | None = None,
        resets: bool = False,
    ) -> int:
        """A process that was overtaken must `release` before it acquires again, because the state
        that it has read is outdated. `resets`: also where the epoch is damaged.
        """
        with self._lock:
            if self._fence.ever_held:
                self._fence.check()  # raises if another process has taken over
            held = self._fence.held
            if held is not None:
                if held.task == task:
                    return held.epoch
                owned, other = ("all" if it is None else it.label for it in (held.task, task))
                raise ValueError(
                    f"this process owns {owned} of {subject(self._paths)}, not {other}; release "
                    "the ownership first"
                )
            ensure(self._tree, self._paths.base)
            deadline = time.monotonic() + timeout_s
            has_said = timeout_s <= 0
            try:
                while not isinstance(taken := self._take(owner, task, resets=resets), Claim):
                    if not has_said:
                        log.warning(
                            "%s. This process is waiting up to %.0f s to take over",
                            self._owned_by(taken, task),
                            timeout_s,
                        )
                        has_said = True
                    if not self._has_gone(taken, deadline - time.monotonic()):
                        raise self._owned_by(taken, task)
            except TransactionRefusedError as refused:
                raise StateError(
                    f"{subject(self._paths)} cannot be taken over: znode {refused}",
                    "stop everything else that writes to the application's znodes, remove the "
                    "znodes that do not belong to the application, and try again",
                ) from refused
            self._fence.held = taken
            return taken.epoch

    def release(self) -> None:
        held = self._fence.held
        self._fence.forget()
        if held is not None:
            # Refused where another process has taken over, or the session has expired.
            with suppress(TransactionRefusedError):
                self._tree.commit([*held.guards, Delete(held.node.path)])

    def holders(self) -> Mapping[TaskShare | None, OwnerInfo]:
        holders = self._holders(self._read(self._paths.owner))
        return {holder.task: holder.info for holder in holders}

    def total_tasks(self) -> int | None:
        """Into how many shares the application is divided; None if it is not."""
        return self._total(self._read(self._paths.owner))

    def is_held(self, share: str, epoch: int) -> bool:
        """Whether a live process holds the share, and has since this epoch of it."""
        holders = self._holders(self._read(self._paths.owner))
        holder = next((each for each in holders if str(each.task) == share), None)
        if holder is None or holder.task is None or self._may_replace(holder):
            return False
        path = self._paths.task_epoch(holder.task)
        return _epoch_number(self._read(path), path) == epoch

    def read_unclean_starts(self) -> int:
        path = self._unclean_starts()
        return _epoch_number(self._read(path), path)

    def save_unclean_starts(self, count: int) -> None:
        path = self._unclean_starts()
        self._fence.write([put(path, b"%d" % count, self._read(path))])

    def _unclean_starts(self) -> str:
        task = self._fence.require().task
        if task is None:
            raise ValueError(
                "only a spout task counts its unclean starts; acquire the ownership of a task"
            )
        return self._paths.task_unclean_starts(task)

    # Refused where another process interferes, which it does not do for ever.
    @retry(
        retry=retry_if_exception_type(TransactionRefusedError),
        stop=stop_after_attempt(100),
        reraise=True,
    )
    def _take(self, owner: OwnerInfo, task: TaskShare | None, *, resets: bool) -> Claim | _Holder:
        """The claim that is held now, or the live holder that conflicts with it."""
        paths = self._paths
        epoch, there = self._tree.read([paths.epoch, paths.owner])
        # A task joins an application that is shared by the same total: then only a holder of the
        # same share conflicts with it. In every other case every holder does.
        joined = epoch if task is not None and self._total(there) == task.total else None
        rivals = [
            holder for holder in self._holders(there) if joined is None or holder.task == task
        ]
        live = next((rival for rival in rivals if not self._may_replace(rival)), None)
        if live is not None:
            if joined is None and task and live.task and live.task.total == task.total:
                # It has changed the total since `there` was read, and can be joined.
                raise TransactionRefusedError(0, Refusal.BAD_VERSION, paths.owner, uncertain=False)
            return live
        guards: list[Check]
        first: Operation
        removals: list[Operation] = [Delete(rival.path) for rival in rivals]
        if joined is not None:
            first = Check(paths.epoch, joined.version)
            guards = [first]
        else:
            first, guard, number = _count_up(paths.epoch, epoch, resets=resets)
            guards = [guard]
            removals = self._removals(there, rivals)
        creations: list[Operation] = []
        if task is not None:
            if joined is None:
                shared = _Tasks(total_tasks=task.total)
                creations.append(Create(paths.owner, encode(shared, paths.owner)))
            counter = paths.task_epoch(task)
            # Else what was below `epoch` is removed.
            earlier = None if joined is None else self._read(counter)
            counted, guard, number = _count_up(counter, earlier)
            creations.append(counted)
            guards.append(guard)
        path = paths.owner if task is None else paths.task_owner(task)
        node = Create(path, encode(owner, path), ephemeral=True)
        # The removals come before the creations, which reuse their paths.
        commit_once(self._tree, [first, *removals, *creations, node])
        return Claim(task, number, tuple(guards), node)

    def _has_gone(self, holder: _Holder, timeout_s: float) -> bool:
        """Wait until the holder's node is gone, or its process is seen to be dead."""
        of = holder.path, holder.node.owner_session
        if not is_of_this_host(holder.info):
            return self._tree.wait_gone(*of, max(0.0, timeout_s))
        deadline = time.monotonic() + timeout_s
        while True:
            # No watch tells of the death of a process: the node stays until the session expires.
            left_s = max(0.0, deadline - time.monotonic())
            if self._tree.wait_gone(*of, min(left_s, _LOOK_S)) or is_provably_dead(holder.info):
                return True
            if not left_s:
                return False

    def _owned_by(self, holder: _Holder, task: TaskShare | None) -> OwnedByAnotherError:
        is_spark = holder.task is task is None
        if holder.task is not None and holder.task.total == 1:
            # It owns the whole, too: there is no other task index, and no task to join.
            holder = replace(holder, task=None)
        who, name = describe(holder.info), subject(self._paths)
        other_name = "or use another application name"
        is_of_session = (
            is_spark
            and is_of_this_host(holder.info)
            and holder.info.pid != os.getpid()
            and is_below(holder.info, os.getpid())
        )
        if is_of_session:
            # To stop that process would end this query, too.
            what = f"{name} is already being read in this Spark session by {who}"
            remedy = (
                "stop the session's other query; or, if this query reads the stream twice, as in a "
                "self-join, give one of its two DataFrames another application name"
            )
        elif holder.task is None:
            what = f"{name} is already being run by {who}"
            remedy = f"stop the other process first, {other_name}"
        elif task is None:
            what = f"{name} is already being run by {holder.task.label}, {who}"
            remedy = f"stop all tasks of the application first, {other_name}"
        elif holder.task == task:
            what = f"{task.label} of {name} is already being run by {who}"
            remedy = "stop the other process first, or run this process with another task index"
        else:
            total = holder.task.total
            what = (
                f"{name} is already running with a total of {total} tasks, not {task.total} "
                f"({holder.task.label} is {who})"
            )
            remedy = (
                "stop all tasks of the application, and start every task with a total of "
                f"{task.total} tasks"
            )
            if task.index < total:
                remedy = f"start this task with a total of {total} tasks; or {remedy}"
        return OwnedByAnotherError(what, remedy)

    def _may_replace(self, holder: _Holder) -> bool:
        """Whether the holder is known to be gone, although its session may not have expired yet."""
        if holder.node.owner_session == self._tree.session_id():
            return True  # this store's own claim, whose answer was lost
        return is_provably_dead(holder.info)

    def _removals(self, there: Znode | None, rivals: Sequence[_Holder]) -> list[Operation]:
        """Removes what was there before a change: dead holders, the nodes below `epoch`, `owner`.

        The checks of the epochs make sure that no dead holder of a share was replaced meanwhile.
        """
        replaced = [
            self._paths.task_epoch(rival.task) for rival in rivals if rival.task is not None
        ]
        counters = zip(replaced, self._tree.read(replaced), strict=True)
        return [
            *(Check(path, counter.version) for path, counter in counters if counter is not None),
            *(Delete(rival.path) for rival in rivals),
            *(Delete(f"{self._paths.epoch}/{name}") for name in self._names(self._paths.epoch)),
            *([] if there is None or there.owner_session else [Delete(self._paths.owner)]),
        ]

    def _holders(self, there: Znode | None) -> list[_Holder]:
        """The owner of the whole application, or the owners of shares in order; empty if there is
        none. `there`: the node `owner`.
        """
        if there is None:
            return []
        path = self._paths.owner
        if there.owner_session:
            return [_Holder(path, there, None, decode(there.data, OwnerInfo, path))]
        tasks = []
        for name in self._tree.children([path])[0] or ():
            try:
                tasks.append(TaskShare.parse(name))
            except InvalidStoreSettingError as exc:
                raise StoredDataError(
                    f"znode {path}/{name} is not named after a task", "remove it"
                ) from exc
        tasks.sort(key=lambda task: (task.total, task.index))
        paths = [self._paths.task_owner(task) for task in tasks]
        return [
            _Holder(path, node, task, decode(node.data, OwnerInfo, path))
            for task, path, node in zip(tasks, paths, self._tree.read(paths), strict=True)
            if node is not None
        ]

    def _total(self, there: Znode | None) -> int | None:
        """The number of tasks that share the application; None if it is not shared."""
        if there is None or there.owner_session:
            return None
        return decode(there.data, _Tasks, self._paths.owner).total_tasks


def _epoch_number(node: Znode | None, path: str) -> int:
    """The number in an epoch's node, 0 without a node. Raises `StoredDataError`."""
    if node is None:
        return 0
    try:
        return int(node.data)
    except ValueError as exc:
        raise StoredDataError(
            f"znode {path} contains {node.data[:40]!r} instead of a number",
            "restore the znode from a backup, or remove the state of the application with "
            "kinesis-spout reset",
        ) from exc


def _count_up(
    path: str, node: Znode | None, *, resets: bool = False
) -> tuple[Operation, Check, int]:
    """What increments an epoch, the check that it was not since, and the new number."""
    try:
        number = _epoch_number(node, path) + 1
    except StoredDataError:
        if node is None or not resets:
            raise
        number = node.version + 1  # each owner has counted it up by one write
    counted = put(path, b"%d" % number, node)
    return counted, stands(counted), number
