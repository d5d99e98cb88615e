"""The list of the stream's shards, by which several tasks divide them among themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
        ...

    def save(self, shard_ids: Sequence[str]) -> None:
        """Write the shard list, in this order. A list that is equal to the stored one is not
        written.

        Raises `NotListerError` for a task that is not, or no longer, the leader (`try_lead`),
        `StaleOwnerError`, and `ConflictError` when it was changed in between.
        """
        ...

    def remove(self) -> None:
        """Remove the shard list, if there is one: the shards were not listed yet.

        Raises `NotListerError`, `StaleOwnerError` and `ConflictError` as `save`.
        """
        ...

    def read(self) -> tuple[str, ...] | None:
        """The list that `save` wrote, or the Kinesis Storm spout, in the writer's order; None if
        there is none. Needs no ownership.
        """
        ...

    def watch(self, callback: Callable[[], None]) -> None:
        """Watch the shard list until `close`. Calls back after each change, and after each lost
        connection, when a change may have been missed.

        Watch first and read afterwards, so that no change is missed. Needs no ownership. The
        callback runs in a thread of the store (in memory: in the thread that made the change), and
        it may run more than once for a change. It must return quickly, raise nothing, and not call
        the store: it sets an event.
        """
        ...
