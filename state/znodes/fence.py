"""The ownership of an application's state, and the fence around every write of the owner.

A new owner increments its epochs (`state.znodes.claim` has the nodes). Every write of the owner is
one transaction that starts with two kinds of checks:

- The epochs are in the versions that this owner knows. If not, another process has taken over, and
  this one can write nothing any more.
- The owner's ephemeral node exists. If not, its session expired. The fence creates the node again,
  which is possible only while no epoch has changed, and then repeats the write.

So the epoch is a fencing token (M. Kleppmann, "How to do distributed locking", 2016) that ZooKeeper
itself checks. A process that only believes that it is the owner does no harm.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from state.errors import OwnedByAnotherError, StaleOwnerError, StoreUnavailableError
from state.owner.ownership import describe, is_of_this_host, is_provably_dead
from state.znodes.claim import Claim, Claims, Holder
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

    from state.owner.owner_info import OwnerInfo
    from state.state_store import TaskShare
    from state.znodes.paths import ZookeeperPaths

log = logging.getLogger("kinesis_spout")
_LOOK_S = 0.5  # between two looks at whether the holder's process lives
_MAX_ROUNDS = 8  # of regaining the ownership; each needs the session to expire once more


class Fence:
    """Acquires, holds and releases the ownership, and commits the owner's transactions. Safe from
    any thread.
    """

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths, claims: Claims) -> None:
        self._tree = tree
        self._paths = paths
        self._claims = claims
        self._lock = threading.Lock()
        self._held: Claim | None = None
        self._overtaken = False

    @property
    def held(self) -> Claim | None:
        """The claim that is held, as far as this process knows."""
        return self._held

    @property
    def ever_held(self) -> bool:
        """Whether the ownership is held, or was held and another process has taken over."""
        return self._held is not None or self._overtaken

    def acquire(self, owner: OwnerInfo, *, timeout_s: float, task: TaskShare | None = None) -> int:
        """See `StateStore.acquire`. A process that was overtaken must `release` before it acquires
        again, because the state that it has read is outdated.
        """
        with self._lock:
            if self._held is not None or self._overtaken:
                self.commit([])  # raises if another process has taken over
            if self._held is not None:
                self._check_same(self._held.task, task)
                return self._held.epoch
            self._tree.ensure(self._paths.base)
            deadline = time.monotonic() + timeout_s
            has_said = timeout_s <= 0
            while True:
                taken = self._claims.take(owner, task)
                if isinstance(taken, Claim):
                    self._held = taken
                    return taken.epoch
                if taken is not None and not has_said:
                    log.warning(
                        "%s; waiting up to %.0f s for it", self._owned_by(taken, task), timeout_s
                    )
                    has_said = True
                if taken is not None and not self._has_gone(taken, deadline - time.monotonic()):
                    raise self._owned_by(taken, task)

    def release(self) -> None:
        """Give up the ownership, if it is held."""
        held, self._held, self._overtaken = self._held, None, False
        if held is None:
            return
        try:
            self._tree.commit([*held.guards, Delete(held.node.path)])
        except TransactionRefusedError:
            return  # another process has taken over, or the session has expired

    def forget(self) -> None:
        """Forget the ownership without a write: the session is being closed, and its node with
        it.
        """
        self._held, self._overtaken = None, False

    def commit(self, operations: Sequence[Operation]) -> None:
        """Commit the owner's operations behind the fence. Without operations, only check that the
        ownership still holds. Each operation creates a node, sets it in a version that it names, or
        deletes it.

        After a lost answer, a refusal is ignored if the nodes hold exactly what this write would
        have made of them. Raises `StaleOwnerError`, or `TransactionRefusedError` with the index
        among `operations`.
        """
        uncertain = False
        for _ in range(_MAX_ROUNDS):
            held = self._held
            if held is None:
                raise (
                    self._stale()
                    if self._overtaken
                    else StaleOwnerError(
                        f"{self._name} is not owned by this store; acquire it first"
                    )
                )
            fence: list[Operation] = [*held.guards, Check(held.node.path, 0)]
            try:
                self._tree.commit([*fence, *operations])
            except TransactionRefusedError as refused:
                # A refusal names the first check that failed. An epoch comes before the ephemeral
                # node: with both gone there is nothing to regain.
                uncertain = uncertain or refused.uncertain
                if refused.index < len(held.guards):
                    self._held, self._overtaken = None, True
                    raise self._stale() from refused
                if refused.index == len(held.guards):
                    self._regain(held)
                    continue
                if uncertain and self._landed(operations):
                    return
                raise TransactionRefusedError(
                    refused.index - len(fence), refused.refusal, refused.path, uncertain=uncertain
                ) from refused
            else:
                return
        raise StoreUnavailableError(
            f"the session that owns {self._name} expired {_MAX_ROUNDS} times in a row; check the "
            "ZooKeeper servers"
        )

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
            raise ValueError(
                f"this store owns {'all' if held is None else held.label} of {self._name}, not "
                f"{'all' if wanted is None else wanted.label} of it; release the ownership first"
            )

    @property
    def _name(self) -> str:
        return f"application {self._paths.application!r} of stream {self._paths.stream!r}"

    def _stale(self) -> StaleOwnerError:
        return StaleOwnerError(
            f"another process has taken over {self._name}, so this one can store nothing any more; "
            "the other one gets what this one had not stored, also records that it has delivered"
        )

    def _owned_by(self, holder: Holder, task: TaskShare | None) -> OwnedByAnotherError:
        who = describe(holder.info)
        if holder.task is None:
            what = (
                f"{self._name} is being consumed by {who}; stop that process first, or use another "
                "application name"
            )
        elif task is None:
            what = (
                f"{self._name} is being consumed by {holder.task.label}, {who}; stop all tasks "
                "first, or use another application name"
            )
        elif holder.task == task:
            what = (
                f"{task.label} of {self._name} is running already ({who}); stop that process "
                "first, or give this one another task index"
            )
        else:
            what = (
                f"{self._name} is being consumed by {holder.task.total} tasks in total, not "
                f"{task.total} ({holder.task.label} is {who}); stop the others first, or use the "
                f"same total of {holder.task.total}"
            )
        return OwnedByAnotherError(what)

    def _landed(self, operations: Sequence[Operation]) -> bool:
        """Whether the nodes hold what these operations would have made of them."""
        nodes = self._tree.read([operation.path for operation in operations])
        return all(
            _is_done(operation, node) for operation, node in zip(operations, nodes, strict=True)
        )

    def _regain(self, held: Claim) -> None:
        """Create the ephemeral node again after the session expired. Raises `StaleOwnerError` if an
        epoch has changed.
        """
        try:
            self._tree.commit([*held.guards, held.node])
        except TransactionRefusedError as refused:
            if refused.index < len(held.guards):
                self._held, self._overtaken = None, True
                raise self._stale() from refused
            # else another thread has just regained it


def _is_done(operation: Operation, node: Znode | None) -> bool:
    match operation:
        case Create(_, data):
            return node is not None and node.version == 0 and node.data == data
        case Set(_, data, version):
            return node is not None and node.version == version + 1 and node.data == data
        case Delete():
            return node is None
        case Check():
            return True
