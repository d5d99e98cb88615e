"""The ownership of an application, and how a process waits for it (nodes: `state.znodes.claim`)."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from state.errors import OwnedByAnotherError
from state.process import describe, is_of_this_host, is_provably_dead
from state.znodes.claim import Claim, Claims, epoch_number
from state.znodes.nodes import Nodes
from state.znodes.paths import subject
from state.znodes.tree import put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from state.store.ownership import OwnerInfo, TaskShare
    from state.znodes.claim import Holder
    from state.znodes.fence import Fence
    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import ZnodeTree

log = logging.getLogger("kinesis_spout")
_LOOK_S = 0.5  # between two looks at whether the holder's process lives


class OwnershipZnodes(Nodes):
    """An `OwnershipStore`."""

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths, fence: Fence) -> None:
        super().__init__(tree, paths, fence)
        self._claims = Claims(tree, paths)
        self._lock = threading.Lock()

    def acquire(self, owner: OwnerInfo, *, timeout_s: float, task: TaskShare | None = None) -> int:
        """A process that was overtaken must `release` before it acquires again, because the state
        that it has read is outdated.
        """
        with self._lock:
            if self._fence.ever_held:
                self._fence.check()  # raises if another process has taken over
            held = self._fence.held
            if held is not None:
                self._check_same(held.task, task)
                return held.epoch
            self._tree.ensure(self._paths.base)
            deadline = time.monotonic() + timeout_s
            has_said = timeout_s <= 0
            while True:
                taken = self._claims.take(owner, task)
                if isinstance(taken, Claim):
                    self._fence.hold(taken)
                    return taken.epoch
                if taken is not None and not has_said:
                    log.warning(
                        "%s; waiting up to %.0f s for it", self._owned_by(taken, task), timeout_s
                    )
                    has_said = True
                if taken is not None and not self._has_gone(taken, deadline - time.monotonic()):
                    raise self._owned_by(taken, task)

    def release(self) -> None:
        self._fence.release()

    def holders(self) -> Mapping[TaskShare | None, OwnerInfo]:
        return {holder.task: holder.info for holder in self._claims.holders()}

    def read_unclean_starts(self) -> int:
        path = self._unclean_starts()
        return epoch_number(self._read(path), path)

    def save_unclean_starts(self, count: int) -> None:
        path = self._unclean_starts()
        self._fence.write([put(path, b"%d" % count, self._read(path))])

    def _unclean_starts(self) -> str:
        task = self._fence.require().task
        if task is None:
            raise ValueError("only a task counts its starts; acquire a task's share")
        return self._paths.task_unclean_starts(task)

    def _has_gone(self, holder: Holder, timeout_s: float) -> bool:
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

    def _check_same(self, held: TaskShare | None, wanted: TaskShare | None) -> None:
        if held != wanted:
            owned, other = ("all" if task is None else task.label for task in (held, wanted))
            raise ValueError(
                f"this store owns {owned} of {subject(self._paths)}, not {other} of it; release "
                "the ownership first"
            )

    def _owned_by(self, holder: Holder, task: TaskShare | None) -> OwnedByAnotherError:
        who, name = describe(holder.info), subject(self._paths)
        if holder.task is None:
            what = (
                f"{name} is being consumed by {who}; stop that process first, or use another "
                "application name"
            )
        elif task is None:
            what = (
                f"{name} is being consumed by {holder.task.label}, {who}; stop all tasks "
                "first, or use another application name"
            )
        elif holder.task == task:
            what = (
                f"{task.label} of {name} is running already ({who}); stop that process "
                "first, or give this one another task index"
            )
        else:
            what = (
                f"{name} is being consumed by {holder.task.total} tasks in total, not "
                f"{task.total} ({holder.task.label} is {who}); stop the others first, or use the "
                f"same total of {holder.task.total}"
            )
        return OwnedByAnotherError(what)
