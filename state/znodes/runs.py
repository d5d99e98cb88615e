"""The runs of an application as znodes, one for each share of it.

The beginning of a run is a write of the owner, and so is what that owner adds later. Whatever is
added names the run: it is written only while that is still the newest one, in the version that was
read. So a process that never was the owner (the main process of a Spark driver) may add how the run
ended, and one that was replaced changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from state.codec.values import decode, encode
from state.errors import InvalidStoreSettingError, StoredDataError
from state.store.ownership import TaskShare
from state.store.runs import RunLog, RunStore
from state.znodes.fence import Nodes
from state.znodes.tree import (
    Delete,
    Operation,
    Set,
    TransactionRefusedError,
    commit_once,
    ensure,
    put,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from state.store.ownership import OwnerInfo
    from state.store.runs import Run
    from state.znodes.tree import Znode

_WHOLE = "all"
_MAX_ROUNDS = 3
_MAX_REMOVED = 100  # in one transaction


class RunZnodes(Nodes, RunStore):
    """A `RunStore`."""

    def begin(self, run: Run) -> None:
        held = self._fence.require()
        path = self._path(held.task)
        ensure(self._tree, self._paths.runs)
        node = self._read(path)
        log = RunLog() if node is None else _log(node.data, path)
        operations: list[Operation] = [put(path, encode(log.begun(run), path), node)]
        # Those of another number of shares: nobody can own one of them any more. What does not fit
        # the transaction is left to the next run.
        total = None if held.task is None else held.task.total
        for name in self._names(self._paths.runs):
            task = _share(name)
            if (None if task is None else task.total) != total and len(operations) < _MAX_REMOVED:
                operations.append(Delete(self._paths.run_log(name)))
        # Where somebody has amended the run before, or removed a node, this run is not told.
        with suppress(TransactionRefusedError):
            self._fence.commit(operations)

    def amend(self, of: OwnerInfo, amended: Callable[[RunLog], RunLog]) -> bool:
        for _ in range(_MAX_ROUNDS):
            if (found := self._newest_of(of)) is None:
                return False
            path, node = found
            before = _log(node.data, path)
            after = amended(before)
            if after == before:
                return True
            write = Set(path, encode(after, path), node.version)
            with suppress(TransactionRefusedError):  # it was amended meanwhile
                if self._fence.ever_held:
                    self._fence.commit([write])
                else:
                    commit_once(self._tree, [write])
                return True
        return False

    def read(self) -> Mapping[TaskShare | None, RunLog]:
        names = self._names(self._paths.runs)
        return self._values({_share(name): self._paths.run_log(name) for name in names}, _log)

    def _newest_of(self, owner: OwnerInfo) -> tuple[str, Znode] | None:
        """The node whose newest run is of this owner."""
        held = self._fence.held
        paths = [self._paths.run_log(name) for name in self._names(self._paths.runs)]
        for path, node in zip(paths, self._tree.read(paths), strict=True):
            # Else another share, taken by the same process in the same millisecond.
            if node is not None and (held is None or path == self._path(held.task)):
                newest = _log(node.data, path).newest
                if newest is not None and newest.owner == owner:
                    return path, node
        return None

    def _path(self, task: TaskShare | None) -> str:
        return self._paths.run_log(_WHOLE) if task is None else self._paths.task_runs(task)


def _log(data: bytes, path: str) -> RunLog:
    """Whatever is there, also of a newer version: nothing is decided by it."""
    try:
        return decode(data, RunLog, path)
    except StoredDataError:
        return RunLog()


def _share(name: str) -> TaskShare | None:
    try:
        return TaskShare.parse(name)
    except InvalidStoreSettingError:
        return None
