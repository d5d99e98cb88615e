"""Shard states as znodes. Each is written by compare-and-set, behind the owner's fence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.codec.shard_states import decode_shard_state, encode_shard_state
from state.errors import CheckpointRegressionError
from state.failpoint import failpoint, is_armed
from state.store.shard_states import StateChange, StoredState
from state.znodes.fence import in_transactions
from state.znodes.nodes import Nodes
from state.znodes.paths import is_shard
from state.znodes.tree import Check, Create, Delete, Operation, put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from state.shard_state import ShardState
    from state.znodes.fence import Fence
    from state.znodes.paths import ZookeeperPaths
    from state.znodes.tree import ZnodeTree

MAX_STATES_PER_WRITE = 500


@dataclass(frozen=True, slots=True)
class _Write:
    """One shard's part of a transaction: `version` is what it will be in, `state` what `data`
    stands for.
    """

    path: str
    state: ShardState
    data: bytes
    before: StoredState | None

    @property
    def version(self) -> int:
        return 0 if self.before is None else self.before.version + 1


class ShardStateZnodes(Nodes):
    """A `ShardStateStore`. `states_per_write`: the maximum states of a transaction."""

    def __init__(
        self,
        tree: ZnodeTree,
        paths: ZookeeperPaths,
        fence: Fence,
        states_per_write: int = MAX_STATES_PER_WRITE,
    ) -> None:
        super().__init__(tree, paths, fence)
        # Of the few shards of a test, only single writes leave a process a place to die in between.
        self._states_per_write = 1 if is_armed("shard-states-half-written") else states_per_write
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
        self,
        changes: Sequence[StateChange],
        *,
        cache: dict[str, StoredState] | None = None,
    ) -> list[StoredState]:
        for change in changes:
            _check_shard(change)
            _check_checkpoint(change)
        return self._save(changes, {} if cache is None else cache)

    def move(self, changes: Sequence[StateChange]) -> list[StoredState]:
        for change in changes:
            _check_shard(change)
        return self._save(changes, {})

    def _save(
        self, changes: Sequence[StateChange], cache: dict[str, StoredState]
    ) -> list[StoredState]:
        # All are encoded before the first is written: one that is too large refuses them all.
        writes = [self._write(change) for change in changes]
        if len({write.path for write in writes}) < len(writes):
            raise ValueError(
                f"a shard under {self._paths.base} occurs twice in one write; merge its changes "
                "first"
            )
        saved: list[StoredState] = []
        for transaction in in_transactions(writes, self._states_per_write):
            self._fence.write(list(self._operations(transaction)))
            stored = [StoredState(write.state, write.version) for write in transaction]
            cache.update((each.state.shard_id, each) for each in stored)
            saved += stored
            if len(saved) < len(writes):
                failpoint("shard-states-half-written")
        return saved

    def check(self, states: Iterable[ShardState]) -> None:
        for state in states:
            self._write(StateChange(before=None, after=state))

    def remove(
        self, states: Sequence[StoredState], *, cache: dict[str, StoredState] | None = None
    ) -> None:
        for first in range(0, len(states), MAX_STATES_PER_WRITE):
            transaction = states[first : first + MAX_STATES_PER_WRITE]
            self._fence.write(list(self._removals(transaction)))
            if cache is not None:
                for stored in transaction:
                    cache.pop(stored.state.shard_id, None)

    def _removals(self, states: Sequence[StoredState]) -> Iterator[Operation]:
        folders = [self._paths.shard(stored.state.shard_id) for stored in states]
        for stored, folder, children in zip(
            states, folders, self._tree.children(folders), strict=True
        ):
            path = self._paths.shard_state(stored.state.shard_id)
            yield Check(path, stored.version)
            yield Delete(path)
            if children is not None and len(children) == 1:
                yield Delete(folder)  # else it has nodes of another program

    def _write(self, change: StateChange) -> _Write:
        path = self._paths.shard_state(change.after.shard_id)
        data, state = encode_shard_state(change.after, path)
        return _Write(path, state, data, change.before)

    def _operations(self, writes: Iterable[_Write]) -> Iterator[Operation]:
        created = [write for write in writes if write.before is None]
        folders = [self._paths.shard(write.state.shard_id) for write in created]
        for folder, node in zip(folders, self._tree.read(folders), strict=True):
            if node is None:
                yield Create(folder, b"")
        for write in writes:
            yield put(write.path, write.data, write.before)


def _check_shard(change: StateChange) -> None:
    before, after = change.before, change.after
    if before is not None and before.state.shard_id != after.shard_id:
        raise ValueError(
            f"the new state belongs to shard {after.shard_id}, but the state that it replaces "
            f"belongs to shard {before.state.shard_id}; pass the state of the same shard"
        )


def _check_checkpoint(change: StateChange) -> None:
    if change.before is None:
        return
    before, after = change.before.state, change.after
    went_back = before.checkpoint is not None and (
        after.checkpoint is None or after.checkpoint < before.checkpoint
    )
    if went_back or (before.finished and not after.finished):
        raise CheckpointRegressionError(
            f"the checkpoint of shard {after.shard_id} would move back from {_shown(before)} to "
            f"{_shown(after)}",
            "load the states again",
        )


def _shown(state: ShardState) -> str:
    return f"SHARD_END after {state.checkpoint}" if state.finished else str(state.checkpoint_text)
