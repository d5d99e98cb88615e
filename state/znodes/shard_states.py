"""Shard states and the shard list as znodes, and the election of the shard list leader.

The node `epoch/lister` names the leader: its task and the epoch of its share. The task that wrote
the node writes the list only together with a check of the node's version. The node is not
ephemeral: a leader is gone when its task's own ephemeral node is, or when its share has another
epoch. One that comes back after another task has taken the role finds the node in another version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from state.codec.shard_states import decode_shard_state, encode_shard_state
from state.codec.values import MAX_VALUE_BYTES, decode, encode
from state.collections import in_batches
from state.errors import CheckpointRegressionError, NotListerError
from state.failpoint import failpoint, is_armed
from state.store.shard_states import ShardListStore, ShardStateStore, StateChange, StoredState
from state.znodes.fence import Nodes, in_transactions
from state.znodes.paths import is_shard
from state.znodes.tree import (
    Check,
    Create,
    Delete,
    Operation,
    Set,
    TransactionRefusedError,
    conflict,
    put,
    stands,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from state.shard_state import ShardState
    from state.znodes.fence import Claim, Fence
    from state.znodes.ownership import OwnershipZnodes

MAX_STATES_PER_WRITE = 500


class ShardStateZnodes(Nodes, ShardStateStore):
    """A `ShardStateStore`. `states_per_write`: the maximum states of a transaction."""

    def __init__(self, fence: Fence) -> None:
        super().__init__(fence)
        # Of the few shards of a test, only single writes leave a process a place to die in between.
        is_tested = is_armed("shard-states-half-written")
        self.states_per_write = 1 if is_tested else MAX_STATES_PER_WRITE
        self._loaded: dict[str, tuple[bytes, ShardState]] = {}  # by shard, as it was last loaded

    def load(self) -> Mapping[str, StoredState]:
        names = self._tree.children([self._paths.base])[0] or ()
        shard_ids = sorted(filter(is_shard, names))
        paths = [self._paths.shard_state(shard_id) for shard_id in shard_ids]
        known, self._loaded = self._loaded, {}
        loaded = {}
        for shard_id, path, node in zip(shard_ids, paths, self._tree.read(paths), strict=True):
            if node is None:
                continue
            # Most shards' bytes are those of the last load: the same bytes are the same state.
            data, state = known.get(shard_id, (None, None))
            if state is None or data != node.data:
                state = decode_shard_state(node.data, shard_id, path)
            self._loaded[shard_id] = node.data, state
            loaded[shard_id] = StoredState(state, node.version)
        return loaded

    def save(
        self, changes: Sequence[StateChange], *, cache: dict[str, StoredState] | None = None
    ) -> list[StoredState]:
        for change in changes:
            if change.before is not None:
                _check_does_not_go_back(change.before.state, change.after)
        return self.move(changes, cache=cache)

    def move(
        self, changes: Sequence[StateChange], *, cache: dict[str, StoredState] | None = None
    ) -> list[StoredState]:
        # All are encoded before the first is written: one that is too large refuses them all.
        writes: list[Create | Set] = []
        after: list[StoredState] = []
        for change in changes:
            shard_id = change.after.shard_id
            if change.before is not None and change.before.state.shard_id != shard_id:
                raise ValueError(
                    f"the new state belongs to shard {shard_id}, but the state that it replaces "
                    f"belongs to shard {change.before.state.shard_id}; pass the state of the same "
                    "shard"
                )
            path = self._paths.shard_state(shard_id)
            data, state = encode_shard_state(change.after, path)
            write = put(path, data, change.before)
            writes.append(write)
            after.append(StoredState(state, stands(write).version))
        if len({write.path for write in writes}) < len(writes):
            raise ValueError(
                f"one write contains a shard under {self._paths.base} twice; merge the shard's "
                "changes first"
            )
        written = 0
        for transaction in in_transactions(writes, self.states_per_write):
            folders = [
                write.path.rpartition("/")[0] for write in transaction if isinstance(write, Create)
            ]
            nodes = zip(folders, self._tree.read(folders), strict=True)
            missing = [Create(folder, b"") for folder, node in nodes if node is None]
            self._fence.write([*missing, *transaction])
            stored = after[written : written + len(transaction)]
            if cache is not None:
                cache.update((each.state.shard_id, each) for each in stored)
            written += len(transaction)
            if written < len(writes):
                failpoint("shard-states-half-written")
        return after

    def check(self, states: Iterable[ShardState]) -> None:
        for state in states:
            encode_shard_state(state, self._paths.shard_state(state.shard_id))

    def remove(
        self, states: Sequence[StoredState], *, cache: dict[str, StoredState] | None = None
    ) -> None:
        for transaction in in_batches(
            states,
            lambda stored: 3 * len(self._paths.shard_state(stored.state.shard_id)),
            most=MAX_STATES_PER_WRITE,
            most_bytes=MAX_VALUE_BYTES,
        ):
            folders = [self._paths.shard(stored.state.shard_id) for stored in transaction]
            found = zip(transaction, folders, self._tree.children(folders), strict=True)
            removals: list[Operation] = []
            for stored, folder, children in found:
                path = self._paths.shard_state(stored.state.shard_id)
                removals += [Check(path, stored.version), Delete(path)]
                if children is not None and len(children) == 1:
                    removals.append(Delete(folder))  # else it has nodes of another program
            self._fence.write(removals)
            if cache is not None:
                for stored in transaction:
                    cache.pop(stored.state.shard_id, None)


def _check_does_not_go_back(before: ShardState, after: ShardState) -> None:
    went_back = before.checkpoint is not None and (
        after.checkpoint is None or after.checkpoint < before.checkpoint
    )
    if went_back or (before.finished and not after.finished):
        raise CheckpointRegressionError(
            f"the checkpoint of shard {after.shard_id} would move back from {_shown(before)} to "
            f"{_shown(after)}",
            "load the shard states again",
        )


def _shown(state: ShardState) -> str:
    return f"SHARD_END after {state.checkpoint}" if state.finished else str(state.checkpoint_text)


class _StoredShardList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The format of the Kinesis Storm spout."""

    shard_list: list[str]


class _Leader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `epoch/lister`: the leader's task, and the epoch of its share."""

    task: str
    epoch: int
    format: int = 1


class ShardListZnodes(Nodes, ShardListStore):
    """A `ShardListStore`."""

    def __init__(self, fence: Fence, ownership: OwnershipZnodes) -> None:
        super().__init__(fence)
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
        write: Operation
        if node is not None and leader == me:
            write = role = Check(path, node.version)
        elif leader is not None and self._ownership.is_held(leader.task, leader.epoch):
            return False
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
        """The check that a task still leads; the owner of the whole application needs none."""
        held = self._fence.held
        if held is None or held.task is None:
            return []
        if self._led is None or self._led[0] is not held:
            self._fence.check()  # a process that was overtaken gets that error instead
            raise self._not_leader()
        return [self._led[1]]

    def _not_leader(self) -> NotListerError:
        return NotListerError(
            f"another task lists the shards of {self._paths.base}, so this task wrote no "
            "list of shards"
        )
