"""Claims on an application: one process owns the whole of it, or each of several tasks owns a
share.

Whole. The node `owner` is ephemeral. Every new owner increments `epoch`.

Shares. The node `owner` is persistent and holds the number of tasks. `owner/1-of-3` is ephemeral,
and every new owner of that share increments `epoch/1-of-3`.

Changes. A process that changes from the one form to the other, or changes the number of tasks, does
three things in one transaction: it increments `epoch`; it creates `owner` again, which ZooKeeper
refuses while the old one has children, that is live tasks; and it removes the nodes below `epoch`.

Hence the fence: an owner that knows `epoch`, or its share's epoch, in an older version has lost the
ownership.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from state.codec.values import decode, encode
from state.errors import InvalidStoreSettingError, StoredDataError
from state.process import is_provably_dead
from state.store.ownership import OwnerInfo, TaskShare
from state.znodes.tree import (
    Check,
    Create,
    Delete,
    Operation,
    TransactionRefusedError,
    Znode,
    ZnodeTree,
    put,
    stands,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.znodes.paths import ZookeeperPaths


@dataclass(frozen=True, slots=True)
class Claim:
    """An ownership that is held.

    - `task`: the share, or None for the whole application.
    - `guards`: the epochs, in the versions that they keep until another process takes over.
    - `node`: the ephemeral node, which is removed when the session ends.
    """

    task: TaskShare | None
    epoch: int
    guards: tuple[Check, ...]
    node: Create


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds the application (`task` is None) or a share of it, as it was read.
    `node` is its ephemeral node.
    """

    path: str
    node: Znode
    task: TaskShare | None
    info: OwnerInfo


class _Tasks(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `owner` while tasks share the application."""

    total_tasks: int
    format: int = 1


class Claims:
    """Reads who holds the application, and claims it. Keeps no state of its own."""

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths) -> None:
        self._tree = tree
        self._paths = paths

    def holders(self) -> list[Holder]:
        """The owner of the whole application, or the owners of shares in order; empty if there is
        none.
        """
        return self._holders(self._tree.read([self._paths.owner])[0])

    def total_tasks(self) -> int | None:
        """Into how many shares the application is divided; None if it is not."""
        return self._total(self._tree.read([self._paths.owner])[0])

    def take(self, owner: OwnerInfo, task: TaskShare | None) -> Claim | Holder | None:
        """Try once. Returns the claim that is held now, or the live holder that conflicts with it,
        or None if another process interfered and the caller should try again.
        """
        epoch, there = self._tree.read([self._paths.epoch, self._paths.owner])
        # A task joins an application that is shared by the same total: then only a holder of the
        # same share conflicts with it. In every other case every holder does.
        joins = task is not None and epoch is not None and self._total(there) == task.total
        rivals = [holder for holder in self._holders(there) if not joins or holder.task == task]
        live = next((rival for rival in rivals if not self.may_replace(rival)), None)
        if live is not None:
            return live
        if task is None:
            claim, operations = self._whole(owner, epoch)
        else:
            claim, operations = self._share(owner, task, epoch, joins=joins)
        removals = (
            [Delete(rival.path) for rival in rivals] if joins else self._removals(there, rivals)
        )
        try:
            # The first operation counts or checks `epoch`. The removals come before the creations,
            # which reuse their paths.
            self._tree.commit([operations[0], *removals, *operations[1:]])
        except TransactionRefusedError as refused:
            return claim if refused.uncertain and self._stands(claim) else None
        return claim

    def may_replace(self, holder: Holder) -> bool:
        """Whether the holder is known to be gone, although its session may not have expired yet."""
        if holder.node.owner_session == self._tree.session_id():
            return True  # this store's own claim, whose answer was lost
        return is_provably_dead(holder.info)

    def _whole(self, owner: OwnerInfo, epoch: Znode | None) -> tuple[Claim, list[Operation]]:
        counted, guard, number = _count_up(self._paths.epoch, epoch)
        node = Create(self._paths.owner, encode(owner, self._paths.owner), ephemeral=True)
        return Claim(None, number, (guard,), node), [counted, node]

    def _share(
        self, owner: OwnerInfo, task: TaskShare, epoch: Znode | None, *, joins: bool
    ) -> tuple[Claim, list[Operation]]:
        """A share of an application that is shared by the same total already (`joins`); or the
        first one, of an application that was not shared, or by another total.
        """
        whole, counter = self._paths.owner, self._paths.task_epoch(task)
        operations: list[Operation]
        if joins and epoch is not None:
            guard = Check(self._paths.epoch, epoch.version)
            operations, earlier = [guard], self._tree.read([counter])[0]
        else:
            counted, guard, _ = _count_up(self._paths.epoch, epoch)
            divided = Create(whole, encode(_Tasks(total_tasks=task.total), whole))
            operations, earlier = [counted, divided], None  # what was below `epoch` is removed
        task_counted, task_guard, number = _count_up(counter, earlier)
        path = self._paths.task_owner(task)
        node = Create(path, encode(owner, path), ephemeral=True)
        return Claim(task, number, (guard, task_guard), node), [*operations, task_counted, node]

    def _removals(self, there: Znode | None, rivals: Sequence[Holder]) -> list[Operation]:
        """Removes what was there before a change: dead holders, the nodes below `epoch`, `owner`.

        The checks of the epochs make sure that no dead holder of a share was replaced meanwhile.
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
        """Whether a claim whose answer was lost was applied and still holds."""
        *counters, node = self._tree.read(
            [*(guard.path for guard in claim.guards), claim.node.path]
        )
        unchanged = [
            counter is not None and counter.version == guard.version
            for counter, guard in zip(counters, claim.guards, strict=True)
        ]
        return all(unchanged) and node is not None and node.owner_session == self._tree.session_id()

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
            (self._share_of(name) for name in self._tree.children([self._paths.owner])[0] or ()),
            key=lambda task: (task.total, task.index),
        )
        paths = [self._paths.task_owner(task) for task in tasks]
        return [
            Holder(path, node, task, decode(node.data, OwnerInfo, path))
            for task, path, node in zip(tasks, paths, self._tree.read(paths), strict=True)
            if node is not None
        ]

    def _share_of(self, name: str) -> TaskShare:
        try:
            return TaskShare.parse(name)
        except InvalidStoreSettingError as exc:
            raise StoredDataError(
                f"{self._paths.owner}/{name} is not the node of a task; remove it"
            ) from exc

    def _total(self, there: Znode | None) -> int | None:
        """The number of tasks that share the application; None if it is not shared."""
        if there is None or there.owner_session:
            return None
        return decode(there.data, _Tasks, self._paths.owner).total_tasks


def epoch_number(node: Znode | None, path: str) -> int:
    """The number in an epoch's node, 0 without a node. Raises `StoredDataError`."""
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
    """The operation that increments an epoch, the check that it was not incremented since, and the
    new number.
    """
    number = epoch_number(node, path) + 1
    counted = put(path, b"%d" % number, node)
    return counted, stands(counted), number
