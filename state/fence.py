"""The ownership of an application's state, and the fence around every write of the owner.

`epoch` is counted up by each new owner. Every owner write is a transaction that also checks that `epoch` is in the
version which this owner made, and that the ephemeral `owner` is there: one who was overtaken writes nothing, and one
whose session lapsed writes nothing before the ownership is regained (which only works while the epoch has not moved).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.codec import decode, encode
from state.errors import OwnedByAnotherError, StaleOwnerError, StoredDataError, StoreUnavailableError
from state.ownership import describe, is_provably_dead
from state.state_store import OwnerInfo
from state.znode_tree import Check, Create, Delete, Operation, Set, TransactionRefusedError, Znode, ZnodeTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.zookeeper_paths import ZookeeperPaths

_MAX_ROUNDS = 8  # rounds of regaining; each needs the session to lapse once more


@dataclass(frozen=True, slots=True)
class _Held:
    epoch: int
    epoch_version: int
    info: bytes


class Fence:
    """Takes, holds and gives up the ownership, and commits the owner's transactions. Safe from any thread."""

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths) -> None:
        self._tree = tree
        self._paths = paths
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._overtaken = False

    @property
    def ever_held(self) -> bool:
        """Whether the ownership is held, or has passed on to another process since."""
        return self._held is not None or self._overtaken

    def acquire(self, owner: OwnerInfo, *, timeout_s: float) -> int:
        """See `StateStore.acquire`. One who was overtaken must `release` before it acquires anew: what it knows is old."""
        with self._lock:
            if self._held is not None or self._overtaken:
                self.commit([])
            if self._held is not None:
                return self._held.epoch
            self._tree.ensure(self._paths.base)
            info = encode(owner, self._paths.owner)
            deadline = time.monotonic() + timeout_s
            while True:
                holder = self._take(info)
                if self._held is not None:
                    return self._held.epoch
                if holder is not None and not self._tree.wait_gone(self._paths.owner, max(0.0, deadline - time.monotonic())):
                    raise self._owned_by(holder)

    def release(self) -> None:
        """Give the ownership up, if it is held."""
        held, self._held, self._overtaken = self._held, None, False
        if held is None:
            return
        try:
            self._tree.commit([Check(self._paths.epoch, held.epoch_version), Delete(self._paths.owner)])
        except TransactionRefusedError:
            return  # it has passed on, or lapsed already

    def forget(self) -> None:
        """The session ends: the ownership lapses with it."""
        self._held, self._overtaken = None, False

    def commit(self, operations: Sequence[Operation]) -> None:
        """Commit the owner's operations behind the fence; each sets or creates one node in a version that it names.

        A refusal after a lost answer is no refusal when what stands there is this very write.
        Raises `StaleOwnerError`, or `TransactionRefusedError` with the index among `operations`.
        """
        uncertain = False
        for _ in range(_MAX_ROUNDS):
            held = self._held
            if held is None:
                raise (
                    self._stale()
                    if self._overtaken
                    else StaleOwnerError(f"{self._name} is not owned by this store; acquire it first")
                )
            fence: list[Operation] = [Check(self._paths.epoch, held.epoch_version), Check(self._paths.owner, 0)]
            try:
                self._tree.commit([*fence, *operations])
            except TransactionRefusedError as refused:
                uncertain = uncertain or refused.uncertain
                if refused.index == 0:
                    self._held, self._overtaken = None, True
                    raise self._stale() from refused
                if refused.index == 1:
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
            f"the session that owns {self._name} was lost {_MAX_ROUNDS} times in a row; check the ZooKeeper servers"
        )

    @property
    def _name(self) -> str:
        return f"application {self._paths.application!r} of stream {self._paths.stream!r}"

    def _stale(self) -> StaleOwnerError:
        return StaleOwnerError(
            f"another process has taken over {self._name}; nothing was written, and this process can write nothing any more"
        )

    def _owned_by(self, holder: Znode) -> OwnedByAnotherError:
        who = describe(decode(holder.data, OwnerInfo, self._paths.owner))
        return OwnedByAnotherError(
            f"{self._name} is being consumed by {who}; stop that one first, or use another application name"
        )

    def _take(self, info: bytes) -> Znode | None:
        """Try once. Returns the live holder that is in the way, or None: then it is held, or worth another try."""
        epoch, owner = self._tree.read([self._paths.epoch, self._paths.owner])
        if owner is not None and not self._may_replace(owner):
            return owner
        number = _epoch_number(epoch, self._paths.epoch) + 1
        operations: list[Operation] = [
            Create(self._paths.epoch, b"%d" % number) if epoch is None else Set(self._paths.epoch, b"%d" % number, epoch.version)
        ]
        if owner is not None:
            operations.append(Delete(self._paths.owner))
        operations.append(Create(self._paths.owner, info, ephemeral=True))
        try:
            version = self._tree.commit(operations)[0]
        except TransactionRefusedError as refused:
            if not refused.uncertain or not self._took(number):
                return None
            version = 0 if epoch is None else epoch.version + 1
        self._held = _Held(number, version, info)
        return None

    def _may_replace(self, owner: Znode) -> bool:
        if owner.owner_session == self._tree.session_id():
            return True  # of an acquisition whose answer never came
        return is_provably_dead(decode(owner.data, OwnerInfo, self._paths.owner))

    def _took(self, number: int) -> bool:
        epoch, owner = self._tree.read([self._paths.epoch, self._paths.owner])
        ours = owner is not None and owner.owner_session == self._tree.session_id()
        return ours and _epoch_number(epoch, self._paths.epoch) == number

    def _landed(self, operations: Sequence[Operation]) -> bool:
        nodes = self._tree.read([operation.path for operation in operations])
        return all(_is_done(operation, node) for operation, node in zip(operations, nodes, strict=True))

    def _regain(self, held: _Held) -> None:
        """The session was lost: own again, unless the epoch has moved."""
        try:
            self._tree.commit(
                [Check(self._paths.epoch, held.epoch_version), Create(self._paths.owner, held.info, ephemeral=True)]
            )
        except TransactionRefusedError as refused:
            if refused.index == 0:
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


def _epoch_number(epoch: Znode | None, path: str) -> int:
    if epoch is None:
        return 0
    try:
        return int(epoch.data)
    except ValueError as exc:
        raise StoredDataError(
            f"{path} holds {epoch.data[:40]!r} instead of a number; restore it, or remove the application's state"
        ) from exc
