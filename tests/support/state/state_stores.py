"""The state store's implementations behind one interface, so that one contract suite checks both;
and what its tests write, and hear of.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Protocol

import msgspec
import pytest
from kazoo.client import KazooClient

from state.errors import StaleOwnerError
from state.memory_store import MemoryBackend, MemoryStateStore
from state.plan import Plan, ShardReadResult, ShardSlice, TaskPlan, make_plan_id
from state.position import TRIM_HORIZON, Position
from state.process import this_process
from state.report import PlanReport, ShardOutcome
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.identity import StreamIdentity
from state.store.ownership import OwnerInfo, TaskShare
from state.store.shard_states import StateChange
from state.task_log import TaskLog
from state.znodes.tree import Delete
from state.zookeeper.store import ZookeeperStateStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.znodes.topics import StoreTopics

ROOT, STREAM = "root", "flights"
OWNER = OwnerInfo(host="host-a", pid=4242, since_ms=1_357_000_000_000)
OTHER = OwnerInfo(host="host-b", pid=4343, since_ms=1_357_000_000_000)
IDENTITY = StreamIdentity(
    arn="arn:aws:kinesis:eu-west-1:1:stream/flights", name="flights", created_ms=1_000
)


class StoreWorld(Protocol):
    """One application's state, and the stores of several processes."""

    def open(self) -> StoreTopics:
        """The store of another process. It is closed at the end of the test."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a node below the application's stream, as another program would."""
        ...

    def get(self, path: str) -> bytes:
        """Read a node below the application's stream."""
        ...

    def remove(self, path: str) -> None:
        """Remove a node below the application's stream, and all below it, as a person would."""
        ...

    def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted."""
        ...

    def lose_session(self, store: StoreTopics) -> None:
        """End the store's session on the server's side, while its process lives."""
        ...

    def renew(self) -> None:
        """Switch to an application without state."""
        ...

    def close(self) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self._backend = MemoryBackend()
        self._application = "app"

    def open(self) -> MemoryStateStore:
        return MemoryStateStore(
            self._backend, application=self._application, stream=STREAM, root=ROOT
        )

    def put(self, path: str, data: bytes) -> None:
        self._backend.put(f"/{ROOT}/{self._application}/{STREAM}/{path}", data)

    def get(self, path: str) -> bytes:
        node = self._backend.read([f"/{ROOT}/{self._application}/{STREAM}/{path}"])[0]
        assert node is not None
        return node.data

    def remove(self, path: str) -> None:
        for child in self.children(path):
            self.remove(f"{path}/{child}")
        self._backend.commit([Delete(f"/{ROOT}/{self._application}/{STREAM}/{path}")], 0)

    def children(self, path: str) -> list[str]:
        return sorted(
            self._backend.children([f"/{ROOT}/{self._application}/{STREAM}/{path}"])[0] or ()
        )

    def lose_session(self, store: StoreTopics) -> None:
        assert isinstance(store, MemoryStateStore)
        store.lose_session()

    def renew(self) -> None:
        self._application = f"app-{uuid.uuid4().hex}"

    def close(self) -> None:
        pass


class ZookeeperWorld:
    def __init__(self, address: str) -> None:
        self._address = address
        self._server, _, chroot = address.partition("/")
        self._chroot = chroot
        self._application = "app"
        self._stores: list[ZookeeperStateStore] = []
        self._other_program = KazooClient(self._server)
        self._other_program.start()

    def open(self) -> ZookeeperStateStore:
        store = ZookeeperStateStore(
            self._address,
            application=self._application,
            stream=STREAM,
            root=ROOT,
            session_timeout_s=4.0,
        )
        self._stores.append(store)
        return store

    def put(self, path: str, data: bytes) -> None:
        whole = self._path(path)
        self._other_program.ensure_path(whole)
        self._other_program.set(whole, data)

    def get(self, path: str) -> bytes:
        data: bytes = self._other_program.get(self._path(path))[0]
        return data

    def remove(self, path: str) -> None:
        self._other_program.delete(self._path(path), recursive=True)

    def children(self, path: str) -> list[str]:
        return sorted(self._other_program.get_children(self._path(path)))

    def lose_session(self, store: StoreTopics) -> None:
        end_session(self._server, store)

    def renew(self) -> None:
        for store in self._stores:
            store.close()
        self._stores.clear()
        self._application = f"app-{uuid.uuid4().hex}"

    def close(self) -> None:
        self.renew()
        self._other_program.stop()
        self._other_program.close()

    def _path(self, path: str) -> str:
        return f"/{self._chroot}/{ROOT}/{self._application}/{STREAM}/{path}"


def end_session(server: str, store: StoreTopics) -> None:
    """End the store's session for real: a second client joins the session and closes it."""
    store.ownership.holders()  # connects the store
    session = store._tree._client.client_id  # type: ignore[attr-defined]  # the store hides its session
    thief = KazooClient(server, client_id=session)
    thief.start()
    thief.stop()
    thief.close()


def sequence(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def state_at(number: int, shard_id: str = "shardId-000000000000") -> ShardState:
    return ShardState(
        shard_id=shard_id,
        checkpoint=sequence(number),
        read_position=Position.after(sequence(number)),
    )


def plan(number: int, nonce: str = "aa", tasks: int = 2) -> Plan:
    task = TaskPlan(
        shards=(
            ShardSlice(shard_id="shardId-000000000000", position=TRIM_HORIZON, max_records=10),
        ),
        max_bytes=1,
        fetch_time_ms=2,
        fetch_cap_ms=3,
    )
    return Plan(plan_id=make_plan_id(number, nonce), created_ms=5, tasks=(task,) * tasks)


def entry(first: int, count: int = 1, *, shard_id: str = "shardId-000000000000") -> ShardReadResult:
    """`count` records with successive numbers from `first` on."""
    return ShardReadResult(
        shard_id=shard_id, first=sequence(first), last=sequence(first + count - 1), count=count
    )


def log_of(*counts: int, sealed: bool = True) -> TaskLog:
    """A log with an entry of so many records for each count, all of one shard."""
    return TaskLog(
        entries=tuple(entry(1 + 100 * n, count) for n, count in enumerate(counts)), sealed=sealed
    )


def owned(world: StoreWorld, owner: OwnerInfo = OWNER) -> StoreTopics:
    store = world.open()
    store.ownership.acquire(owner, timeout_s=10)
    return store


def failures(count: int, shards: int = 1, reason: str = "no rates for order") -> PlanReport:
    """A report with this many failed records in each shard, each with a reason of its own."""
    outcomes = tuple(
        ShardOutcome(
            shard_id=f"shardId-{shard:012}",
            unresolved=tuple(
                UnresolvedRecord(
                    first=sequence(10**55 + n),
                    last=sequence(10**55 + n),
                    attempts=1,
                    due_ms=1_700_000_000_000 + n,
                    first_failure_ms=1_700_000_000_000,
                    last_failure_ms=1_700_000_000_000,
                    reason=f"{reason} {n}",
                )
                for n in range(count)
            ),
        )
        for shard in range(shards)
    )
    return PlanReport(
        shards=outcomes, failed=count * shards, retried=count * shards, done_ms=1_700_000_000_001
    )


def task_of(world: StoreWorld, index: int, total: int, owner: OwnerInfo = OWNER) -> StoreTopics:
    """The store of task `index` of `total`."""
    store = world.open()
    store.ownership.acquire(owner, timeout_s=10, task=TaskShare(index, total))
    return store


def dead_process() -> OwnerInfo:
    """An owner on this host that ended long ago: no process has so high a pid."""
    return msgspec.structs.replace(this_process(0), pid=2**22 + 1)


def write_one(store: StoreTopics, shard_id: str) -> None:
    """Create a state, as owner."""
    store.shard_states.save([StateChange(None, state_at(1, shard_id))])


def assert_stale(store: StoreTopics, task: TaskShare | None) -> None:
    """Each write of a stale owner is refused, and it does not regain the ownership by itself."""
    writes: list[Callable[[], object]] = [
        lambda: write_one(store, "shard-of-the-stale"),
        lambda: store.shard_list.save(["shard-of-the-stale"]),
        lambda: store.identity.bind(IDENTITY),
        store.shard_list.try_lead,
        lambda: store.ownership.acquire(OWNER, timeout_s=0, task=task),
    ]
    for write in writes:
        with pytest.raises(StaleOwnerError, match="another process has taken over"):
            write()
    assert "shard-of-the-stale" not in store.shard_states.load()
    assert (store.shard_list.read(), store.identity.read()) == (None, None)


class Bell:
    """`ring` is the callback. `heard` waits for a call, and takes it."""

    def __init__(self) -> None:
        self._rung = threading.Semaphore(0)

    def ring(self) -> None:
        self._rung.release()

    def heard(self, timeout_s: float = 30.0) -> bool:
        return self._rung.acquire(timeout=timeout_s)

    def silence(self) -> None:
        """Forget what has rung until now: there may be more than one ring for a change."""
        while self._rung.acquire(blocking=False):
            pass
