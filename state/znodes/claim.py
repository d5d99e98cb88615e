"""What an owner holds, and how it is taken: the whole application for one process, or a share of it
for each of several tasks.

The whole application: `owner` is ephemeral, and every new owner counts `epoch` up.

Tasks: `owner` is persistent and says how many there are; `owner/1-of-3` is ephemeral, and every new
owner of that share counts `epoch/1-of-3` up. Whoever changes from the one to the other, or the
number of tasks, counts `epoch` up, makes `owner` anew, which ZooKeeper refuses while it has
children, and removes what is below `epoch`: all in one transaction. So whoever knows an `epoch`, or
a share's, in an older version was overtaken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from state.codec.values import decode, encode
from state.errors import InvalidStoreSettingError, StoredDataError
from state.ownership import is_provably_dead
from state.state_store import OwnerInfo
from state.task_share import TaskShare
from state.znodes.tree import (
    Check,
    Create,
    Delete,
    Operation,
    Set,
    TransactionRefusedError,
    Znode,
    ZnodeTree,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.znodes.paths import ZookeeperPaths


@dataclass(frozen=True, slots=True)
class Claim:
    """What an owner holds. `guards` stand in these versions until another takes over; `node` goes
    with the session.
    """

    task: TaskShare | None
    epoch: int
    guards: tuple[Check, ...]
    node: Create


@dataclass(frozen=True, slots=True)
class Holder:
    """Who is seen to hold the application (`task` is None) or a share of it. `node` is
    ephemeral.
    """

    path: str
    node: Znode
    task: TaskShare | None
    info: OwnerInfo


class _Tasks(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `owner` holds while tasks share the application."""

    total_tasks: int
    format: int = 1


class Claims:
    """Reads who holds the application, and takes it. Holds nothing itself."""

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths) -> None:
        self._tree = tree
        self._paths = paths

    def holders(self) -> list[Holder]:
        """The owner of the whole application, or the tasks in order; nobody, when
        nobody is there.
        """
        return self._holders(self._tree.read([self._paths.owner])[0])

    def take(self, owner: OwnerInfo, task: TaskShare | None) -> Claim | Holder | None:
        """Try once: what is held now, or the live holder that is in the way, or None when it is
        worth another try.
        """
        epoch, there = self._tree.read([self._paths.epoch, self._paths.owner])
        joins = task is not None and epoch is not None and self._total(there) == task.total
        rivals = [holder for holder in self._holders(there) if not joins or holder.task == task]
        live = next((rival for rival in rivals if not self.may_replace(rival)), None)
        if live is not None:
            return live
        if task is None:
            claim, operations = self._whole(owner, epoch)
        elif joins and epoch is not None:
            claim, operations = self._joined(owner, task, epoch)
        else:
            claim, operations = self._first(owner, task, epoch)
        removals = (
            [Delete(rival.path) for rival in rivals] if joins else self._removals(there, rivals)
        )
        try:
            self._tree.commit([operations[0], *removals, *operations[1:]])
        except TransactionRefusedError as refused:
            return claim if refused.uncertain and self._stands(claim) else None
        return claim

    def may_replace(self, holder: Holder) -> bool:
        """Whether it is known that nobody is behind it any more, although its session may not have
        lapsed yet.
        """
        if holder.node.owner_session == self._tree.session_id():
            return True  # of an acquisition whose answer never came
        return is_provably_dead(holder.info)

    def _whole(self, owner: OwnerInfo, epoch: Znode | None) -> tuple[Claim, list[Operation]]:
        counted, guard, number = _count_up(self._paths.epoch, epoch)
        node = Create(self._paths.owner, encode(owner, self._paths.owner), ephemeral=True)
        return Claim(None, number, (guard,), node), [counted, node]

    def _first(
        self, owner: OwnerInfo, task: TaskShare, epoch: Znode | None
    ) -> tuple[Claim, list[Operation]]:
        """A share of an application that was not divided so before."""
        counted, guard, _ = _count_up(self._paths.epoch, epoch)
        divided = Create(
            self._paths.owner, encode(_Tasks(total_tasks=task.total), self._paths.owner)
        )
        task_counted, task_guard, number = _count_up(self._paths.task_epoch(task), None)
        node = self._task_node(owner, task)
        return Claim(task, number, (guard, task_guard), node), [
            counted,
            divided,
            task_counted,
            node,
        ]

    def _joined(
        self, owner: OwnerInfo, task: TaskShare, epoch: Znode
    ) -> tuple[Claim, list[Operation]]:
        """A share of an application that is divided so already."""
        guard = Check(self._paths.epoch, epoch.version)
        path = self._paths.task_epoch(task)
        task_counted, task_guard, number = _count_up(path, self._tree.read([path])[0])
        node = self._task_node(owner, task)
        return Claim(task, number, (guard, task_guard), node), [guard, task_counted, node]

    def _task_node(self, owner: OwnerInfo, task: TaskShare) -> Create:
        path = self._paths.task_owner(task)
        return Create(path, encode(owner, path), ephemeral=True)

    def _removals(self, there: Znode | None, rivals: Sequence[Holder]) -> list[Operation]:
        """What was before the change: dead holders (unless another has replaced them just now),
        counters of shares, `owner`.
        """
        names = self._tree.children([self._paths.epoch])[0] or ()
        replaced = [
            self._paths.task_epoch(rival.task) for rival in rivals if rival.task is not None
        ]
        counters = zip(replaced, self._tree.read(replaced), strict=True)
        return [
            *(Check(path, counter.version) for path, counter in counters if counter is not None),
            *(Delete(rival.path) for rival in rivals),
            *(Delete(f"{self._paths.epoch}/{name}") for name in sorted(names)),
            *([] if there is None or there.owner_session else [Delete(self._paths.owner)]),
        ]

    def _stands(self, claim: Claim) -> bool:
        """Whether a claim whose answer was lost is there."""
        *counters, node = self._tree.read(
            [*(guard.path for guard in claim.guards), claim.node.path]
        )
        stands = [
            counter is not None and counter.version == guard.version
            for counter, guard in zip(counters, claim.guards, strict=True)
        ]
        return all(stands) and node is not None and node.owner_session == self._tree.session_id()

    def _holders(self, there: Znode | None) -> list[Holder]:
        if there is None:
            return []
        if there.owner_session:
            return [
                Holder(
                    self._paths.owner, there, None, decode(there.data, OwnerInfo, self._paths.owner)
                )
            ]
        tasks = sorted(
            (self._share(name) for name in self._tree.children([self._paths.owner])[0] or ()),
            key=lambda task: (task.total, task.index),
        )
        paths = [self._paths.task_owner(task) for task in tasks]
        return [
            Holder(path, node, task, decode(node.data, OwnerInfo, path))
            for task, path, node in zip(tasks, paths, self._tree.read(paths), strict=True)
            if node is not None
        ]

    def _share(self, name: str) -> TaskShare:
        try:
            return TaskShare.parse(name)
        except InvalidStoreSettingError as exc:
            raise StoredDataError(f"{self._paths.owner}/{name} is not a task's; remove it") from exc

    def _total(self, there: Znode | None) -> int | None:
        """How many tasks share the application; None when one process has it whole, or nobody."""
        if there is None or there.owner_session:
            return None
        return decode(there.data, _Tasks, self._paths.owner).total_tasks


def epoch_number(node: Znode | None, path: str) -> int:
    """The number that an epoch's node holds, 0 for none; raises `StoredDataError`."""
    if node is None:
        return 0
    try:
        return int(node.data)
    except ValueError as exc:
        raise StoredDataError(
            f"{path} holds {node.data[:40]!r} instead of a number; restore it, or remove the "
            "application's state"
        ) from exc


def _count_up(path: str, node: Znode | None) -> tuple[Operation, Check, int]:
    """What counts an epoch up, what then checks that nobody has done so since, and the
    new number.
    """
    number = epoch_number(node, path) + 1
    if node is None:
        return Create(path, b"%d" % number), Check(path, 0), number
    return Set(path, b"%d" % number, node.version), Check(path, node.version + 1), number
