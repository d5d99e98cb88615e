"""The contract of the state store, for memory and ZooKeeper alike: the logs of tasks, read and
appended to by compare-and-set.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state.codec.values import MAX_VALUE_BYTES
from state.errors import (
    ConflictError,
    StateTooLargeError,
    StoredDataError,
    TaskLogError,
)
from state.store.plans import StoredLog
from state.task_log import TaskLog
from state.znodes.topics import StoreTopics
from tests.support.state.state_stores import entry, log_of, owned, plan
from tests.support.state.trees import ForwardingTree, interposed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from state.znodes.tree import Znode
    from tests.support.state.state_stores import StoreWorld

NOTHING = StoredLog(log=None, version=None, plan_is_open=True)
FORMAT_1 = (
    b'{"token":"0f3a6c1e9d2b47588a1c0de4b7f69e35","shards":[{"shardId":"shardId-000000000000",'
    b'"first":"1","last":"3","count":3}]}'
)
"""`log_of(3)` as the version before logs wrote it."""


@pytest.fixture
def store(store_world: StoreWorld) -> StoreTopics:
    """An owner's store with the open plan `1-aa`."""
    store = owned(store_world)
    store.plans.create(plan(1))
    return store


def appended_until_it_is_there(store: StoreTopics, number: int) -> int:
    """Append one record of a shard of its own, and follow whatever is in the log then. Returns how
    many conflicts there were.
    """
    mine = entry(1, shard_id=f"shardId-{number:012}")
    conflicts = 0
    while True:
        stored = store.plans.read_log("1-aa", 0)
        log = stored.log or TaskLog()
        if mine in log.entries:
            return conflicts
        try:
            store.plans.append_log("1-aa", 0, log.extended([mine], seal=False), stored.version)
        except ConflictError:
            conflicts += 1


def test_each_append_has_the_next_version(store: StoreTopics, store_world: StoreWorld) -> None:
    """The first one creates the log. Each task has its own."""
    other = store_world.open()
    assert store.plans.read_log("1-aa", 0) == NOTHING
    assert store.plans.append_log("1-aa", 0, log_of(3, sealed=False), None) == 0
    assert other.plans.read_log("1-aa", 0) == StoredLog(
        log=log_of(3, sealed=False), version=0, plan_is_open=True
    )
    assert other.plans.append_log("1-aa", 0, log_of(3, 4, sealed=False), 0) == 1
    assert store.plans.append_log("1-aa", 0, log_of(3, 4, 5), 1) == 2
    assert other.plans.read_log("1-aa", 0) == StoredLog(
        log=log_of(3, 4, 5), version=2, plan_is_open=True
    )
    assert other.plans.read_log("1-aa", 1) == NOTHING
    assert store.plans.read_results("1-aa") == {0: log_of(3, 4, 5).folded()}


def test_an_attempt_that_another_has_overtaken_conflicts_and_appends_nothing(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """The first append of both, and later ones, also from a version that is not there yet."""
    other = store_world.open()
    other.plans.append_log("1-aa", 0, log_of(3, sealed=False), None)
    for version in (None, 1, 17):
        with pytest.raises(ConflictError, match=r"changed the task log in .*batches/1-aa/0/end"):
            store.plans.append_log("1-aa", 0, log_of(9), version)
    other.plans.append_log("1-aa", 0, log_of(3, 4), 0)
    for version in (None, 0):
        with pytest.raises(ConflictError):
            store.plans.append_log("1-aa", 0, log_of(9), version)
    assert store.plans.read_log("1-aa", 0) == StoredLog(
        log=log_of(3, 4), version=1, plan_is_open=True
    )


def test_attempts_that_follow_after_each_conflict_append_each_entry_once(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """None is overwritten, whatever the order."""
    executors = [store_world.open() for _ in range(6)]
    with ThreadPoolExecutor(len(executors)) as pool:
        list(pool.map(appended_until_it_is_there, executors, range(len(executors))))
    stored = store.plans.read_log("1-aa", 0)
    assert stored.log is not None
    assert stored.version == len(executors) - 1
    assert sorted(each.shard_id for each in stored.log.entries) == [
        f"shardId-{number:012}" for number in range(len(executors))
    ]


def test_an_append_whose_answer_was_lost_conflicts_and_its_entries_are_in_the_log(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """The first one and later ones. Whoever follows the log continues undisturbed."""
    attempt, tree = interposed(store_world.open())
    tree.loses_answers = True
    with pytest.raises(ConflictError):
        attempt.plans.append_log("1-aa", 0, log_of(3, sealed=False), None)
    assert attempt.plans.read_log("1-aa", 0) == StoredLog(
        log=log_of(3, sealed=False), version=0, plan_is_open=True
    )
    with pytest.raises(ConflictError):
        attempt.plans.append_log("1-aa", 0, log_of(3, 4, sealed=False), 0)
    assert [appended_until_it_is_there(attempt, number) for number in (1, 2, 3)] == [1, 1, 1]
    stored = store.plans.read_log("1-aa", 0)
    assert stored.log is not None
    assert stored.log.entries == (
        *log_of(3, 4).entries,
        *(entry(1, shard_id=f"shardId-{number:012}") for number in (1, 2, 3)),
    )
    assert stored.version == 4


def test_a_log_that_was_removed_by_hand_is_not_begun_again(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """Rows of it may have been handed over, and a second log might name other records. Its marker
    shows that there was one; other tasks go on.
    """
    version = store.plans.append_log("1-aa", 0, log_of(3, sealed=False), None)
    store_world.remove("batches/1-aa/0/end")
    with pytest.raises(ConflictError, match="read the log again"):
        store.plans.append_log("1-aa", 0, log_of(3, 4), version)
    assert store.plans.read_log("1-aa", 0) == NOTHING
    with pytest.raises(TaskLogError, match="was removed"):
        store.plans.append_log("1-aa", 0, log_of(5), None)
    assert store.plans.read_log("1-aa", 0) == NOTHING
    assert store.plans.append_log("1-aa", 1, log_of(5), None) == 0
    assert store.plans.removed_logs("1-aa") == [0]
    assert store.plans.removed_logs("9-aa") == []


def test_a_log_says_whether_its_plan_is_open(store: StoreTopics, store_world: StoreWorld) -> None:
    """A plan that is closed by its successor, removed, or unknown is not."""
    store.plans.append_log("1-aa", 0, log_of(3, sealed=False), None)
    reader = store_world.open()
    open_log = StoredLog(log=log_of(3, sealed=False), version=0, plan_is_open=True)
    assert [reader.plans.read_log("1-aa", task) for task in (0, 1)] == [open_log, NOTHING]
    store.plans.create(plan(2))
    assert [reader.plans.read_log("1-aa", task) for task in (0, 1)] == [
        replace(each, plan_is_open=False) for each in (open_log, NOTHING)
    ]
    assert reader.plans.read_log("2-aa", 0) == NOTHING
    store.plans.close("2-aa")
    store.plans.mark_settled("2-aa")
    store.plans.create(plan(3))
    store.plans.remove("1-aa")
    for plan_id in ("1-aa", "2-aa", "2-bb", "9-aa"):
        assert reader.plans.read_log(plan_id, 0) == replace(NOTHING, plan_is_open=False)
    assert reader.plans.read_log("3-aa", 99) == NOTHING


class _OneByOne(ForwardingTree):
    """Reads node by node. Another process acts after the first."""

    act: Callable[[], object]

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        first, *others = paths
        nodes = self._tree.read([first])
        self.act()
        return [*nodes, *(self._tree.read([path])[0] for path in others)]


def test_the_plan_is_read_before_the_log(store: StoreTopics, store_world: StoreWorld) -> None:
    """So what is read with a closed plan is final. In the other order an attempt could complete
    without the entries that came between.
    """
    other = store_world.open()

    def append_and_close() -> None:
        other.plans.append_log("1-aa", 0, log_of(3), None)
        store.plans.close("1-aa")

    tree = _OneByOne(store._tree)
    tree.act = append_and_close
    reader = StoreTopics(tree, store.paths, reset_command="kinesis-spout reset")
    assert reader.plans.read_log("1-aa", 0) == StoredLog(
        log=log_of(3), version=0, plan_is_open=True
    )


def test_a_log_that_does_not_fit_is_refused(store: StoreTopics) -> None:
    """Above 512 KB nothing is sent, because ZooKeeper drops the connection above 1 MB. One of the
    largest size is stored: the limit leaves room for what a request has besides.
    """
    short = log_of(3, sealed=False)
    for version in (None, store.plans.append_log("1-aa", 1, short, None)):
        task = 0 if version is None else 1
        large = replace(short, entries=(replace(entry(1), iterator="x" * 600_000),))
        with pytest.raises(
            StateTooLargeError, match=rf"batches/1-aa/{task}/end would take 600\d\d\d bytes"
        ):
            store.plans.append_log("1-aa", task, large, version)
    assert store.plans.read_log("1-aa", 0) == NOTHING
    assert store.plans.read_log("1-aa", 1).log == short
    log = TaskLog(entries=(replace(entry(1), iterator="x" * (MAX_VALUE_BYTES - 150)),))
    assert store.plans.append_log("1-aa", 0, log, None) == 0
    assert store.plans.read_log("1-aa", 0).log == log


def test_the_result_of_an_earlier_version_is_a_sealed_log(
    store: StoreTopics, store_world: StoreWorld
) -> None:
    """It was written once, as a whole. Nothing is appended to it."""
    store_world.put("batches/1-aa/0/end", FORMAT_1)
    assert store.plans.read_log("1-aa", 0).log == log_of(3)
    assert store.plans.read_results("1-aa") == {0: log_of(3).folded()}
    assert store.plans.read_results("1-aa")[0].sealed
    with pytest.raises(ConflictError):
        store.plans.append_log("1-aa", 0, log_of(9), None)
    assert store_world.get("batches/1-aa/0/end") == FORMAT_1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"format":3,"rounds":[]}', r"end has format 3, written by a newer version.*upgrade"),
        (b"", r"0/end contains b'', which is not a task log"),
    ],
)
def test_a_newer_or_damaged_log_is_never_taken_for_a_missing_one(
    store: StoreTopics, store_world: StoreWorld, data: bytes, message: str
) -> None:
    store_world.put("batches/1-aa/0/end", data)
    for call in (lambda: store.plans.read_log("1-aa", 0), lambda: store.plans.read_results("1-aa")):
        with pytest.raises(StoredDataError, match=message):
            call()
    with pytest.raises(ConflictError):
        store.plans.append_log("1-aa", 0, log_of(3), None)
