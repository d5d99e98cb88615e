"""A tree of versioned nodes with transactions: what the state store needs of ZooKeeper, and no
more.

`zookeeper_tree` implements it over kazoo, `memory_store` in memory; `znode_state_store` holds the
rules of the state once, for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Znode:
    """A node as it was read. `owner_session` is the session that an ephemeral one lives
    by, else 0.
    """

    data: bytes
    version: int
    owner_session: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """The node exists in this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node whose parent exists. An ephemeral one vanishes with the session."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str


Operation = Check | Create | Set | Delete


class Refusal(Enum):
    NO_NODE = "no such node"
    NODE_EXISTS = "the node exists"
    BAD_VERSION = "the node has another version"
    NOT_EMPTY = "the node has children"


class TransactionRefusedError(StateError):
    """Operation `index` of a transaction was refused, so none was done.

    `uncertain`: an earlier attempt's answer was lost, so it may be that attempt which changed what
    this one met. Stays inside this package: the store says what it means.
    """

    def __init__(self, index: int, refusal: Refusal, path: str, *, uncertain: bool) -> None:
        super().__init__(f"{path}: {refusal.value}")
        self.index = index
        self.refusal = refusal
        self.path = path
        self.uncertain = uncertain


class ZnodeTree(Protocol):
    """A call blocks for at most for the tree's time limit, retries inside it, then raises
    `StoreUnavailableError`.
    """

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """The newest state of each node; None for one that does not exist."""
        ...

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The names of each node's children, in no order; None for a node that does not exist."""
        ...

    def commit(self, operations: Sequence[Operation]) -> list[int]:
        """All or nothing. Returns the version of what each operation created or set (-1 for
        others).

        After a lost answer it is tried again: see `TransactionRefusedError.uncertain`.
        """
        ...

    def ensure(self, path: str) -> None:
        """Create the node and its parents, empty, as far as they do not exist."""
        ...

    def session_id(self) -> int: ...

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        """Wait until the node is not there, or lives by another session; False when it still does
        not after `timeout_s`.
        """
        ...

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        """Call back after each change of the node, of which there may be none yet, and when one may
        have been missed.

        Until `close`. The callback must return quickly, and raise nothing.
        """
        ...

    def close(self) -> None:
        """End the session, and with it its ephemeral nodes and its watches. Idempotent; the next
        call opens a new one.
        """
        ...
