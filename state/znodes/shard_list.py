"""The shard list as a znode, and the election of the shard list leader, the one of several tasks
that writes it.

The node `epoch/lister` names the leader: its task and the epoch of its share. The task that wrote
the node knows the node's version, and writes the list only together with a check of that version.

The node is not ephemeral. A leader is gone when its task's own ephemeral node is, or when its share
has another epoch. A leader that comes back after another task has taken the role finds the node in
another version, and cannot write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from state.codec.values import decode, encode
from state.errors import NotListerError
from state.znodes.nodes import Nodes
from state.znodes.tree import (
    Check,
    Delete,
    Operation,
    TransactionRefusedError,
    conflict,
    put,
    stands,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from state.znodes.fence import Claim, Fence
    from state.znodes.ownership import OwnershipZnodes
    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import ZnodeTree


class _StoredShardList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The format of the Kinesis Storm spout."""

    shard_list: list[str]


class _Leader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `epoch/lister`: the leader's task, and the epoch of its share."""

    task: str
    epoch: int
    format: int = 1


class ShardListZnodes(Nodes):
    """A `ShardListStore`."""

    def __init__(
        self, tree: ZnodeTree, paths: ZookeeperPaths, fence: Fence, ownership: OwnershipZnodes
    ) -> None:
        super().__init__(tree, paths, fence)
        self._ownership = ownership
        self._led: tuple[Claim, Check] | None = None

    def read(self) -> tuple[str, ...] | None:
        stored = self._decoded(self._paths.shard_list, _StoredShardList)
        return None if stored is None else tuple(stored.shard_list)

    def save(self, shard_ids: Sequence[str]) -> None:
        path = self._paths.shard_list
        data = encode(_StoredShardList(shard_list=list(shard_ids)), path)
        role = self._role()
        node = self._read(path)
        is_new = node is None or node.data != data
        if is_new or role:
            self._commit(role, [put(path, data, node)] if is_new else [])

    def remove(self) -> None:
        path = self._paths.shard_list
        node = self._read(path)
        if node is not None:
            self._commit(self._role(), [Check(path, node.version), Delete(path)])

    def _commit(self, role: Sequence[Check], writes: Sequence[Operation]) -> None:
        try:
            self._fence.commit([*role, *writes])
        except TransactionRefusedError as refused:
            raise (
                self._not_leader() if refused.index < len(role) else conflict(refused)
            ) from refused

    def watch(self, callback: Callable[[], None]) -> None:
        self._tree.watch(self._paths.shard_list, callback)

    def try_lead(self) -> bool:
        held = self._fence.require()
        if held.task is None:
            self._fence.check()
            return True
        path = self._paths.shard_list_leader
        me = _Leader(task=str(held.task), epoch=held.epoch)
        node = self._read(path)
        leader = None if node is None else decode(node.data, _Leader, path)
        if (
            leader is not None
            and leader != me
            and self._ownership.is_held(leader.task, leader.epoch)
        ):
            return False
        write: Operation
        if node is not None and leader == me:
            write = role = Check(path, node.version)
        else:
            write = put(path, encode(me, path), node)
            role = stands(write)
        try:
            self._fence.commit([write])
        except TransactionRefusedError:
            return False  # another task was faster
        self._led = held, role
        return True

    def _role(self) -> list[Check]:
        """The check with which a task writes the list: that it still leads. The owner of the whole
        application needs none.
        """
        held = self._fence.held
        if held is None or held.task is None:
            return []
        if self._led is None or self._led[0] is not held:
            self._fence.check()  # a process that was overtaken gets that error instead
            raise self._not_leader()
        return [self._led[1]]

    def _not_leader(self) -> NotListerError:
        return NotListerError(
            f"another task is the shard list leader of {self._paths.base}; nothing was written"
        )
