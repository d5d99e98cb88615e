"""The state of each shard: its checkpoint, what is unresolved, whether it is finished; and the list
of the stream's shards, by which several tasks divide them among themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from state.shard_state import ShardState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class StoredState(msgspec.Struct, frozen=True, gc=False):
    """A shard state and the version in which it was read, for compare-and-set."""

    state: ShardState
    version: int


class StateChange(msgspec.Struct, frozen=True, gc=False):
    """A shard state to write. `before` is the stored state that it is based on; None creates it."""

    before: StoredState | None
    after: ShardState


class ShardStateStore(Protocol):
    """The shard states.

    Needs: transactions of many compare-and-sets with the owner's fence.
    """

    def load(self) -> Mapping[str, StoredState]:
        """All shard states, by shard id. Raises `StoredDataError` if one cannot be read.

        A plain `{"checkpoint": "<seq>"}` of the Kinesis Storm spout means that every record up to
        and including `<seq>` is acked, and that reading continues after it.
        """

    def save(
        self, changes: Sequence[StateChange], *, cache: dict[str, StoredState] | None = None
    ) -> list[StoredState]:
        """Write shard states, compare-and-set each; returns them with their new versions.

        They are written in their order, in as many transactions as they need. `cache`, by shard
        id, is updated after each transaction: after an error it tells which changes are stored.

        Raises `CheckpointRegressionError`, `StateTooLargeError`, and ValueError for a shard that
        occurs twice, before anything is written; `StaleOwnerError` and `ConflictError` (a version
        differs), when nothing of their transaction was written. A state whose list of unresolved
        records is too large for a znode is collapsed into ranges first: detail is dropped towards
        redelivery, keeping the lowest attempt count of a range.
        """

    def check(self, states: Iterable[ShardState]) -> None:
        """Raise `InvalidStoreSettingError` or `StateTooLargeError` where these states cannot be
        stored, whatever is stored. Does no I/O.
        """

    def move(
        self, changes: Sequence[StateChange], *, cache: dict[str, StoredState] | None = None
    ) -> list[StoredState]:
        """Write shard states that an operator has moved: their checkpoints may go back, and a
        finished shard may be read again. Only for that; all else is as in `save`.

        No state is removed in between: stopped at any time, it leaves each shard as it was before
        or as it is after.
        """

    def remove(
        self, states: Sequence[StoredState], *, cache: dict[str, StoredState] | None = None
    ) -> None:
        """Remove the states of shards that are over, each in the version that was read.

        In their order, in as many transactions as they need, with `cache` as in `save`. Raises
        `StaleOwnerError` and `ConflictError`, when nothing of their transaction was removed.
        """


class ShardListStore(Protocol):
    """The shard list, which the shard list leader writes.

    Needs: a compare-and-set with the owner's fence and the leader's; a watch.
    """

    def try_lead(self) -> bool:
        """Become the shard list leader, the one task that writes the shard list, or check that this
        task still is.

        True means that this task leads until its session ends and another task takes the role.
        False means that another live task leads: call again from time to time. The owner of the
        whole application always leads. Raises `StaleOwnerError`.
        """

    def save(self, shard_ids: Sequence[str]) -> None:
        """Write the shard list, in this order. One that is stored already is not written.

        Raises `NotListerError` for a task that is not, or no longer, the leader (`try_lead`),
        `StaleOwnerError`, and `ConflictError` when it was changed in between.
        """

    def remove(self) -> None:
        """Remove the shard list, if there is one: the shards were not listed yet.

        Raises `NotListerError`, `StaleOwnerError` and `ConflictError` as `save`.
        """

    def read(self) -> tuple[str, ...] | None:
        """The list that `save` wrote, or the Kinesis Storm spout, in the writer's order; None if
        there is none. Needs no ownership.
        """

    def watch(self, callback: Callable[[], None]) -> None:
        """Watch the shard list until `close`. Calls back after each change, and after each lost
        connection, when a change may have been missed.

        Watch first and read afterwards, so that no change is missed. Needs no ownership. The
        callback runs in a thread of the store (in memory: in the thread that made the change), and
        it may run more than once for a change. It must return quickly, raise nothing, and not call
        the store: it sets an event.
        """
