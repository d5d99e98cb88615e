"""The list of shards as a znode, and which one of several tasks may write it.

`epoch/lister` names a task and the number of its ownership; whoever wrote it knows its version, and
writes the list only while it stands in that. It is no ephemeral node: the lister is gone when its
task's node is, and one that comes back after another has taken the role over meets another version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from state.codec.values import decode, encode
from state.errors import NotListerError
from state.state_store import ShardList
from state.znodes.claim import epoch_number
from state.znodes.shard_states import conflict
from state.znodes.tree import Check, Create, Operation, Set, TransactionRefusedError, ZnodeTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from state.znodes.claim import Claim, Claims
    from state.znodes.fence import Fence
    from state.znodes.paths import ZookeeperPaths


class _StoredShardList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As the ancestor wrote it."""

    shard_list: list[str]


class _Lister(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    task: str
    epoch: int
    format: int = 1


class ShardListZnodes:
    def __init__(
        self, tree: ZnodeTree, paths: ZookeeperPaths, fence: Fence, claims: Claims
    ) -> None:
        self._tree = tree
        self._paths = paths
        self._fence = fence
        self._claims = claims
        self._led: tuple[Claim, Check] | None = None

    def read(self) -> ShardList | None:
        node = self._tree.read([self._paths.shard_list])[0]
        if node is None:
            return None
        stored = decode(node.data, _StoredShardList, self._paths.shard_list)
        return ShardList(tuple(stored.shard_list), node.version)

    def save(self, shard_ids: Sequence[str]) -> None:
        path = self._paths.shard_list
        data = encode(_StoredShardList(shard_list=list(shard_ids)), path)
        role = self._role()
        node = self._tree.read([path])[0]
        is_new = node is None or node.data != data
        write = Create(path, data) if node is None else Set(path, data, node.version)
        if not is_new and not role:
            return
        try:
            self._fence.commit([*role, *([write] if is_new else [])])
        except TransactionRefusedError as refused:
            raise (
                self._not_lister() if refused.index < len(role) else conflict(refused)
            ) from refused

    def watch(self, callback: Callable[[], None]) -> None:
        self._tree.watch(self._paths.shard_list, callback)

    def try_lead(self) -> bool:
        """See `StateStore.try_lead`."""
        held = self._fence.held
        if held is None or held.task is None:
            self._fence.commit([])
            return True
        path = self._paths.lister
        me = _Lister(task=str(held.task), epoch=held.epoch)
        node = self._tree.read([path])[0]
        lister = None if node is None else decode(node.data, _Lister, path)
        if lister is not None and lister != me and self._is_live(lister):
            return False
        write: Operation
        if node is None:
            write, stands = Create(path, encode(me, path)), Check(path, 0)
        elif lister == me:
            write = stands = Check(path, node.version)
        else:
            write, stands = Set(path, encode(me, path), node.version), Check(path, node.version + 1)
        try:
            self._fence.commit([write])
        except TransactionRefusedError:
            return False  # another was faster
        self._led = held, stands
        return True

    def _role(self) -> list[Check]:
        """What a task has to check before it writes the list; nothing for one who owns the whole
        application.
        """
        held = self._fence.held
        if held is None or held.task is None:
            return []
        if self._led is None or self._led[0] is not held:
            self._fence.commit([])  # one who was overtaken hears of that instead
            raise self._not_lister()
        return [self._led[1]]

    def _is_live(self, lister: _Lister) -> bool:
        holder = next(
            (holder for holder in self._claims.holders() if str(holder.task) == lister.task), None
        )
        if holder is None or holder.task is None or self._claims.may_replace(holder):
            return False
        path = self._paths.task_epoch(holder.task)
        return epoch_number(self._tree.read([path])[0], path) == lister.epoch

    def _not_lister(self) -> NotListerError:
        return NotListerError(
            f"this task does not write the list of shards of {self._paths.base} (any more), "
            "another one does; nothing was written"
        )
