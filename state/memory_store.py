"""The state store in memory, for tests and for trials. Its content ends with its process.

It has the same rules as the store in ZooKeeper (`state.znodes`), over another tree. The contract
suite runs against both. Stores of one `MemoryBackend` are like processes of one ZooKeeper.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from state.errors import StoreUnavailableError
from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from state.znodes.tree import (
    Create,
    Delete,
    Grant,
    Operation,
    Refusal,
    Set,
    TransactionRefusedError,
    Znode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


class _Watch(NamedTuple):
    tree: MemoryTree
    path: str
    callback: Callable[[], None]


class MemoryBackend:
    """The nodes and sessions that several stores share. Safe from any thread.

    What happens to a store, a test does here: it expires sessions; the next `answers_to_lose`
    transactions are applied, but their answers are lost, so that they are sent again; and while the
    backend is `unavailable`, every call of a store fails with `StoreUnavailableError`.
    """

    def __init__(self) -> None:
        self.answers_to_lose = 0
        self.unavailable = False
        self._changed = threading.Condition(threading.RLock())
        self._nodes = {"": Znode(b"", 0)}
        self._names: dict[str, dict[str, None]] = {"": {}}  # of children, in order of creation
        self._watches: list[_Watch] = []
        self._sessions = 0
        self._expired: set[int] = set()

    def put(self, path: str, data: bytes) -> None:
        """Create or overwrite a node, and create its parents, as another program would."""
        with self._changing():
            self._ensure(path)
            self._put(path, Znode(data, self._nodes[path].version + 1))

    def nodes(self, base: str) -> dict[str, Znode]:
        """The nodes below `base`."""
        with self._changed:
            return {path: node for path, node in self._nodes.items() if path.startswith(f"{base}/")}

    def restore(self, nodes: Mapping[str, Znode]) -> None:
        """Put nodes back as they were read, as a backup does."""
        with self._changing():
            for path in sorted(nodes):  # parents before their children
                self._put(path, nodes[path])

    def remove(self, paths: Iterable[str]) -> None:
        """Remove nodes, and leave none below them, as another program would."""
        with self._changing():
            for path in sorted(paths, reverse=True):  # children before their parents
                self._remove(path)

    def expire(self, session: int) -> None:
        """Expire a session. Its ephemeral nodes go, and its store's next call opens another."""
        with self._changing():
            self._expired.add(session)
            own = [path for path, node in self._nodes.items() if node.owner_session == session]
            for path in own:
                self._remove(path)
            watches = [watch for watch in self._watches if watch.tree.session == session]
        for watch in watches:
            watch.callback()

    def open_session(self, session: int) -> int:
        """`session` if it is still alive, else a new session."""
        with self._serving():
            if session and session not in self._expired:
                return session
            self._sessions += 1
            return self._sessions

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        with self._serving():
            return list(map(self._nodes.get, paths))

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        with self._serving():
            return [list(self._names[path]) if path in self._nodes else None for path in paths]

    def commit(self, operations: Sequence[Operation], session: int) -> None:
        with self._changing(), self._serving():
            uncertain = self.answers_to_lose > 0
            if uncertain:
                self.answers_to_lose -= 1
                self._apply(operations, session, uncertain=False)
            self._apply(operations, session, uncertain=uncertain)

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        def is_gone() -> bool:
            node = self._nodes.get(path)
            return node is None or node.owner_session != owner_session

        with self._changed:
            return self._changed.wait_for(is_gone, timeout_s)

    def watch(self, watch: _Watch) -> None:
        with self._serving():
            self._watches.append(watch)

    def unwatch(self, tree: MemoryTree) -> None:
        with self._changed:
            self._watches = [watch for watch in self._watches if watch.tree is not tree]

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Hold the lock for a store's call."""
        with self._changed:
            if self.unavailable:
                raise StoreUnavailableError("a test made the memory store unavailable")
            yield

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock. Then wake who waits, and call watches back without it."""
        with ExitStack() as afterwards, self._changed:
            before = [(watch, self._nodes.get(watch.path)) for watch in self._watches]
            try:
                yield
            finally:
                self._changed.notify_all()
                for watch, node in before:
                    if self._nodes.get(watch.path) is not node:
                        afterwards.callback(watch.callback)

    def _ensure(self, path: str) -> None:
        if path not in self._nodes:
            self._ensure(path.rpartition("/")[0])
            self._put(path, Znode(b"", 0))

    def _put(self, path: str, node: Znode) -> None:
        if path not in self._nodes:
            parent, _, name = path.rpartition("/")
            self._names[parent][name] = None
            self._names[path] = {}
        self._nodes[path] = node

    def _remove(self, path: str) -> None:
        del self._nodes[path], self._names[path]
        parent, _, name = path.rpartition("/")
        del self._names[parent][name]

    def _apply(self, operations: Sequence[Operation], session: int, *, uncertain: bool) -> None:
        before: list[tuple[str, Znode | None]] = []
        for index, operation in enumerate(operations):
            refusal = self._refusal(operation)
            if refusal is not None:
                for path, earlier in reversed(before):
                    if earlier is None:
                        self._remove(path)
                    else:
                        self._put(path, earlier)
                raise TransactionRefusedError(index, refusal, operation.path, uncertain=uncertain)
            node = self._nodes.get(operation.path)
            before.append((operation.path, node))
            match operation:
                case Create(path, data, ephemeral):
                    self._put(path, Znode(data, 0, session if ephemeral else 0))
                case Set(path, data, version):
                    self._put(path, Znode(data, version + 1, node.owner_session if node else 0))
                case Delete(path):
                    self._remove(path)

    def _refusal(self, operation: Operation) -> Refusal | None:
        path = operation.path
        node = self._nodes.get(path)
        if isinstance(operation, Create):
            if node is not None:
                return Refusal.NODE_EXISTS
            return None if path.rpartition("/")[0] in self._nodes else Refusal.NO_NODE
        if node is None:
            return Refusal.NO_NODE
        if isinstance(operation, Delete):
            return Refusal.NOT_EMPTY if self._names[path] else None
        return None if node.version == operation.version else Refusal.BAD_VERSION


class MemoryTree:
    """A `ZnodeTree`: one session of a backend."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._backend = backend
        self.session = 0
        # What needs no session is the backend's own.
        self.read, self.children = backend.read, backend.children
        self.wait_gone = backend.wait_gone

    def grants(self, paths: Sequence[str]) -> list[tuple[Grant, ...] | None]:
        """A tree in memory has no access control lists."""
        return [None for _ in paths]

    def commit(self, operations: Sequence[Operation]) -> None:
        self._backend.commit(operations, self.session_id())

    def session_id(self) -> int:
        self.session = self._backend.open_session(self.session)
        return self.session

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        self.session_id()
        self._backend.watch(_Watch(self, path, callback))

    def close(self) -> None:
        self._backend.unwatch(self)
        if self.session:
            self._backend.expire(self.session)
        self.session = 0


class MemoryStateStore(StoreTopics):
    """The state of one application and stream in a `MemoryBackend`: its own, or one passed.

    `application`: None if the state has no name, because it ends with this process.
    """

    def __init__(
        self,
        backend: MemoryBackend | None = None,
        *,
        application: str | None = "app",
        stream: str = "stream",
        root: str = "kinesis-spout",
    ) -> None:
        self.backend = backend or MemoryBackend()
        command = f"kinesis-spout reset --application {application} --stream {stream}"
        super().__init__(
            MemoryTree(self.backend),
            ZookeeperPaths(root=root, application=application or "unnamed", stream=stream),
            reset_command=None if application is None else command,
        )

    def lose_session(self) -> None:
        """Expire this store's session, as a connection that is down for too long does."""
        self.backend.expire(self._tree.session_id())
