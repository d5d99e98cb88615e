"""A tree of versioned nodes with transactions: the part of ZooKeeper that the state store needs.

`state.zookeeper.tree` implements it over kazoo, `state.memory_store` in memory.
The rest of `state.znodes` has the rules of the state once, for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from state.errors import ConflictError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from state.store.shard_states import StoredState


@dataclass(frozen=True, slots=True)
class Znode:
    """A node as it was read. `owner_session`: an ephemeral node's session, else 0."""

    data: bytes
    version: int
    owner_session: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """An entry of a node's access control list. `may_create`: nodes below it. `may_administer`:
    change the list.
    """

    identity: str
    may_write: bool
    may_create: bool
    may_administer: bool


@dataclass(frozen=True, slots=True)
class Check:
    """Require that the node exists in this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node whose parent exists. An ephemeral node is removed when the session ends."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Overwrite a node that exists in this version; its version then is one more."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str


Operation = Check | Create | Set | Delete


def put(path: str, data: bytes, before: Znode | StoredState | None) -> Create | Set:
    """The operation that writes a node which was read as `before`: it creates the node that did not
    exist, or sets it in the version that was read. Refused if anybody has written it since.
    """
    return Create(path, data) if before is None else Set(path, data, before.version)


def stands(write: Create | Set) -> Check:
    """The check that nobody has changed the node since this write."""
    return Check(write.path, 0 if isinstance(write, Create) else write.version + 1)


class Refusal(Enum):
    """Why an operation was refused, as the predicate of the node."""

    NO_NODE = "was removed"
    NODE_EXISTS = "was created by another process"
    BAD_VERSION = "was changed by another process"
    NOT_EMPTY = "has children"


class TransactionRefusedError(StateError):
    """Operation `index` of a transaction was refused, so none of them was applied.

    `uncertain`: the answer to an earlier attempt was lost, so the refusal may be caused by that
    attempt's own change: see `commit_once`. The error never leaves this package.
    """

    def __init__(self, index: int, refusal: Refusal, path: str, *, uncertain: bool) -> None:
        super().__init__(f"{path} {refusal.value}")
        self.index = index
        self.refusal = refusal
        self.path = path
        self.uncertain = uncertain


def conflict(refused: TransactionRefusedError) -> ConflictError:
    """The error of a write whose nodes changed since they were read."""
    return ConflictError(
        f"znode {refused} after this process had read it. Nothing was written; read the znode again"
    )


class ZnodeTree(Protocol):
    """The seam between the rules of the state and a tree of znodes.

    A call blocks for at most the tree's time limit. It retries transient faults within that limit,
    then raises `StoreUnavailableError`.
    """

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """The newest version of each node, in the order of `paths`; None where there is none."""

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The names of each node's children, unordered; None for a node that does not exist."""

    def grants(self, paths: Sequence[str]) -> list[tuple[Grant, ...] | None]:
        """Each node's access control list; None for a node that does not exist, or has none."""

    def commit(self, operations: Sequence[Operation]) -> None:
        """Apply all operations, or none.

        After a lost answer it is sent again. Raises `TransactionRefusedError`; see its `uncertain`.
        """

    def session_id(self) -> int:
        """The id of the live session; opens one if there is none."""

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        """Wait until the node does not exist or belongs to another session. False if neither is the
        case after `timeout_s`.
        """

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        """Call back after each change of the node until `close`, and whenever a change may have
        been missed. The node need not exist yet.

        The callback must return quickly and raise nothing.
        """

    def close(self) -> None:
        """End the session. Its ephemeral nodes and its watches end with it. Idempotent; the next
        call opens a new session.
        """


def ensure(tree: ZnodeTree, path: str) -> None:
    """Create the node and its parents, without data, if they do not exist."""
    if tree.read([path])[0] is not None:
        return  # its parents exist, and this client may have no access to read them
    try:
        tree.commit([Create(path, b"")])
    except TransactionRefusedError as refused:
        if refused.refusal is Refusal.NO_NODE:
            ensure(tree, path.rpartition("/")[0])
            ensure(tree, path)


def commit_once(tree: ZnodeTree, operations: Sequence[Operation]) -> None:
    """Apply all operations, or none. A transaction that was applied, but whose answer was lost, is
    refused when it is sent again, and was applied all the same. Raises `TransactionRefusedError`.
    """
    try:
        tree.commit(operations)
    except TransactionRefusedError as refused:
        # Of a node that it only checks, the change is another process's.
        changed = {each.path for each in operations if not isinstance(each, Check)}
        may_be_own = refused.uncertain and refused.path in changed
        if not (may_be_own and is_applied(tree, operations)):
            raise


def is_applied(tree: ZnodeTree, operations: Sequence[Operation]) -> bool:
    """Whether the nodes are exactly what these operations would have made of them. The version
    counts, too: the same bytes in a later version may be those of another process.
    """
    last = {each.path: each for each in operations if not isinstance(each, Check)}
    for operation, node in zip(last.values(), tree.read(list(last)), strict=True):
        made = None
        if not isinstance(operation, Delete):
            is_own = isinstance(operation, Create) and operation.ephemeral
            session = tree.session_id() if is_own else 0
            made = Znode(operation.data, stands(operation).version, session)
        if node != made:
            return False
    return bool(last)
