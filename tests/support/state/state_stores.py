"""The state store's implementations behind one interface, so that one contract suite checks both;
and what its tests write, and hear of.
"""

from __future__ import annotations

import threading
import uuid
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest
from kazoo.client import KazooClient

from state.errors import StaleOwnerError
from state.memory_store import MemoryBackend, MemoryStateStore, MemoryTree
from state.plan import Plan, ShardReadResult, ShardSlice, TaskPlan, make_plan_id
from state.position import TRIM_HORIZON, Position
from state.process import this_process
from state.report import PlanReport
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.identity import StreamIdentity
from state.store.ownership import OwnerInfo, TaskShare
from state.store.shard_states import StateChange
from state.task_log import TaskLog
from state.znodes.tree import Delete, ensure, put
from state.zookeeper.store import ZookeeperStateStore
from state.zookeeper.tree import ZookeeperTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.znodes.topics import StoreTopics
    from state.znodes.tree import ZnodeTree

ROOT, STREAM = "root", "flights"
OWNER = OwnerInfo(host="host-a", pid=4242, since_ms=1_357_000_000_000)
OTHER = OwnerInfo(host="host-b", pid=4343, since_ms=1_357_000_000_000)
IDENTITY = StreamIdentity(
    arn="arn:aws:kinesis:eu-west-1:1:stream/flights", name="flights", created_ms=1_000
)


class StoreWorld:
    """One application's state, and the stores of several processes. Paths are below the
    application's stream; nodes there are read and written as by another program. Opened stores are
    closed at the end of the test.
    """

    def __init__(
        self, other: ZnodeTree, chroot: str, open_store: Callable[[str], StoreTopics]
    ) -> None:
        self._other = other
        self._above = f"{chroot}/{ROOT}"
        self._open_store = open_store
        self._application = "app"
        self._stores: list[StoreTopics] = []

    def open(self) -> StoreTopics:
        """The store of another process."""
        self._stores.append(self._open_store(self._application))
        return self._stores[-1]

    def put(self, path: str, data: bytes) -> None:
        whole = self._path(path)
        ensure(self._other, whole)
        self._other.commit([put(whole, data, self._other.read([whole])[0])])

    def get(self, path: str) -> bytes:
        node = self._other.read([self._path(path)])[0]
        assert node is not None
        return node.data

    def remove(self, path: str) -> None:
        """With all below it."""
        for child in self.children(path):
            self.remove(f"{path}/{child}")
        self._other.commit([Delete(self._path(path))])

    def children(self, path: str) -> list[str]:
        """Sorted."""
        return sorted(self._other.children([self._path(path)])[0] or ())

    def lose_session(self, store: StoreTopics) -> None:
        """End the store's session on the server's side, while its process lives."""
        if isinstance(store, MemoryStateStore):
            store.lose_session()
        else:
            end_session(store)

    def renew(self) -> None:
        """Switch to an application without state."""
        for store in self._stores:
            store.close()
        self._stores.clear()
        self._application = f"app-{uuid.uuid4().hex}"

    def close(self) -> None:
        self.renew()
        self._other.close()

    def _path(self, path: str) -> str:
        return f"{self._above}/{self._application}/{STREAM}/{path}"


def memory_world() -> StoreWorld:
    backend = MemoryBackend()
    names = {"stream": STREAM, "root": ROOT}
    return StoreWorld(
        MemoryTree(backend), "", lambda app: MemoryStateStore(backend, application=app, **names)
    )


def zookeeper_world(address: str) -> StoreWorld:
    """`address` has a chroot."""
    opened = partial(ZookeeperStateStore, address, stream=STREAM, root=ROOT, session_timeout_s=4.0)
    chroot = address[address.index("/") :]
    return StoreWorld(ZookeeperTree(address), chroot, lambda app: opened(application=app))


def end_session(store: StoreTopics) -> None:
    """End the store's session for real: a second client joins the session and closes it."""
    store.ownership.holders()  # connects the store
    client = store._tree._client  # type: ignore[attr-defined]  # the store hides its session
    thief = KazooClient("{}:{}".format(*client.hosts[0]), client_id=client.client_id)
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


def owned(
    world: StoreWorld, owner: OwnerInfo = OWNER, task: TaskShare | None = None
) -> StoreTopics:
    """The store of another process, which owns the whole application, or a task's share."""
    store = world.open()
    store.ownership.acquire(owner, timeout_s=10, task=task)
    return store


def failures(count: int, shards: int = 1, reason: str = "no rates for order") -> PlanReport:
    """A report with this many failed records in each shard, each with a reason of its own."""
    failed = tuple(
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
    )
    return PlanReport(
        unresolved={f"shardId-{shard:012}": failed for shard in range(shards)},
        failed=count * shards,
        retried=count * shards,
        done_ms=1_700_000_000_001,
    )


def task_of(world: StoreWorld, index: int, total: int, owner: OwnerInfo = OWNER) -> StoreTopics:
    return owned(world, owner, TaskShare(index, total))


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
        lambda: store.identity.amend(IDENTITY),
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
