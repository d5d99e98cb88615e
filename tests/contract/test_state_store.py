"""The contract of the state store (`state/store/`), for memory and ZooKeeper alike:
ownership, identity, start.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import strategies as st

from state.errors import (
    ConflictError,
    OwnedByAnotherError,
    StaleOwnerError,
    StateError,
    StoredDataError,
    StreamMismatchError,
)
from state.plan import PlanPointer, PlanStatus
from state.position import TRIM_HORIZON, Position
from state.report import OutcomePolicy
from state.store.history import HistoryEntry, HistoryIndex
from state.store.identity import Pause, StartPin
from state.store.ownership import TaskShare
from state.store.runs import SPARK, Run
from state.store.shard_states import StateChange
from tests.support.state import state_values
from tests.support.state.state_stores import (
    IDENTITY,
    OTHER,
    OWNER,
    failures,
    log_of,
    owned,
    plan,
    state_at,
)
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.plan import Plan
    from state.report import PlanReport
    from state.shard_state import ShardState
    from state.task_log import TaskLog
    from tests.support.state.state_stores import StoreWorld

    Everything = tuple[list[ShardState], Plan, list[TaskLog], PlanReport, OutcomePolicy]


def test_the_second_owner_acquires_it_when_the_first_releases_it(
    store_world: StoreWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The release wakes a waiting owner long before its timeout. It says at once whom it waits
    for.
    """
    first = owned(store_world)
    second = store_world.open()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.ownership.acquire, OTHER, timeout_s=60)
        wait_until(lambda: "process 4242 on host-a" in caplog.text)
        assert "is waiting up to 60 s to take over" in caplog.text
        assert not waiting.done()
        first.ownership.release()
        assert waiting.result(timeout=30) == 2
    assert second.ownership.holders() == {None: OTHER}


def test_a_damaged_epoch_stops_an_owner_and_no_reset(store_world: StoreWorld) -> None:
    """It is the remedy that the error names. The number is not below an earlier one."""
    for _ in range(3):
        owned(store_world).ownership.release()
    store_world.put("epoch", b"three")
    store = store_world.open()
    with pytest.raises(StoredDataError, match=r"epoch contains b'three' .* kinesis-spout reset"):
        store.ownership.acquire(OWNER, timeout_s=0)
    store.identity.reset(OWNER, timeout_s=0)
    assert store.ownership.acquire(OWNER, timeout_s=0) > 3


def test_what_stands_in_the_way_of_the_ownership_for_good_is_an_error(
    store_world: StoreWorld,
) -> None:
    """Nobody takes the share of a task away in which another program has created a node."""
    store = store_world.open()
    store.ownership.acquire(OWNER, timeout_s=0, task=TaskShare(0, 2))
    store.ownership.release()
    store_world.put("epoch/0-of-2/other", b"")
    with pytest.raises(StateError, match=r"cannot be taken over: znode .*/epoch/0-of-2 has child"):
        store.ownership.acquire(OWNER, timeout_s=0)
    store_world.remove("epoch/0-of-2/other")
    assert store.ownership.acquire(OWNER, timeout_s=0) > 0


@pytest.fixture(scope="session")
def many() -> list[Everything]:
    states = st.lists(
        state_values.shard_states(), max_size=4, unique_by=lambda state: state.shard_id
    )
    return state_values.sample(
        st.tuples(
            states,
            state_values.plans,
            st.lists(state_values.task_logs, max_size=3),
            state_values.plan_reports,
            state_values.outcome_policies,
        ),
        20,
    )


def test_everything_comes_back_as_it_was_written(
    store_world: StoreWorld, many: list[Everything]
) -> None:
    """Every field survives, also the checkpoint of a finished shard, although it is shown as
    SHARD_END. A mark needs neither ownership nor earlier state.
    """
    for states, drawn, logs, report, policy in many:
        store_world.renew()
        reader, batch = store_world.open(), store_world.open()
        assert reader.reports.read_policy() is None
        batch.reports.mark_tracked(policy)
        store = owned(store_world)
        saved = store.shard_states.save([StateChange(None, state) for state in states])
        store.plans.create(drawn)
        published = dict(zip(range(len(drawn.tasks)), logs, strict=False))
        for task, log in published.items():
            store.plans.append_log(drawn.plan_id, task, log, None)
        batch.reports.finish(batch.reports.open(drawn.plan_id, "token"), report)
        store.plans.close(drawn.plan_id)
        assert [each.state for each in saved] == states
        assert reader.shard_states.load() == {each.state.shard_id: each for each in saved}
        assert reader.plans.read(drawn.plan_id) == drawn
        found = {task: reader.plans.read_log(drawn.plan_id, task).log for task in published}
        assert found == published
        assert reader.plans.read_results(drawn.plan_id) == {
            task: log.folded() for task, log in published.items()
        }
        assert reader.reports.read(drawn.plan_id) == report
        assert reader.reports.read_policy() == policy


def test_a_stale_owner_changes_no_state_and_no_plan_that_it_knows(store_world: StoreWorld) -> None:
    """The contract of tasks has its other writes."""
    old = owned(store_world)
    known = old.shard_states.save([StateChange(None, state_at(1))])[0]
    old.plans.create(plan(1))
    store_world.lose_session(old)
    new = owned(store_world, OTHER)
    writes: list[Callable[[], object]] = [
        lambda: old.shard_states.save([StateChange(known, state_at(2))]),
        lambda: old.shard_states.remove([known]),
        lambda: old.plans.create(plan(2)),
        lambda: old.plans.close("1-aa"),
        lambda: old.plans.mark_settled("1-aa"),
    ]
    for write in writes:
        with pytest.raises((StaleOwnerError, ConflictError)) as refused:
            write()
        assert refused.type is StaleOwnerError or "open" in str(refused.value)
    assert new.shard_states.load() == {known.state.shard_id: known}
    assert new.plans.pointer() == PlanPointer("1-aa", PlanStatus.OPEN)


def test_a_stream_created_again_under_its_name_is_refused_with_the_command_that_helps(
    store_world: StoreWorld,
) -> None:
    """The same stream binds again, also after its retention was amended; another creation time is
    another stream, and so is another ARN, which the error names.
    """
    store = owned(store_world)
    store.identity.bind(IDENTITY)
    store.identity.bind(IDENTITY)
    again = msgspec.structs.replace(IDENTITY, created_ms=2_000)
    with pytest.raises(
        StreamMismatchError,
        match=r"deleted and created again.*kinesis-spout reset --application \S+ --stream flights",
    ):
        store.identity.bind(again)
    other = msgspec.structs.replace(IDENTITY, arn="arn:aws:kinesis:us-east-1:1:stream/flights")
    with pytest.raises(StreamMismatchError, match=f"{IDENTITY.arn}, not to stream {other.arn}"):
        store_world.open().identity.bind(other)
    longer = msgspec.structs.replace(IDENTITY, retention_ms=2, expired_ms=1)
    store.identity.amend(longer)
    assert store.identity.bind(IDENTITY) == store.identity.read() == longer


def test_the_start_is_pinned_once(store_world: StoreWorld) -> None:
    """The first pin holds for every process. No ownership is needed."""
    first = StartPin(
        time_ms=1, requested="LATEST", position=Position.at_timestamp(1), shards=("a", "b")
    )
    second = StartPin(time_ms=2, requested="TRIM_HORIZON", position=TRIM_HORIZON, shards=())
    assert store_world.open().identity.read_start() is None
    assert store_world.open().identity.pin_start(first) == first
    assert store_world.open().identity.pin_start(second) == first
    assert store_world.open().identity.read_start() == first


def test_concurrent_pins_agree(store_world: StoreWorld) -> None:
    pins = [
        StartPin(time_ms=number, requested="LATEST", position=TRIM_HORIZON, shards=())
        for number in range(4)
    ]
    stores = [store_world.open() for _ in pins]
    with ThreadPoolExecutor(len(pins)) as pool:
        held = list(pool.map(lambda store, pin: store.identity.pin_start(pin), stores, pins))
    assert len(set(map(str, held))) == 1


def test_a_reset_removes_everything_but_the_epoch(store_world: StoreWorld) -> None:
    """It is refused while its owner lives. Afterwards the application is like a new one, and an
    owner from before the reset cannot write.
    """
    store = owned(store_world)
    store.identity.bind(IDENTITY)
    store.shard_states.save([StateChange(None, state_at(1))])
    store.shard_list.save(["shardId-000000000000"])
    store.plans.create(plan(1))
    store.plans.append_log("1-aa", 0, log_of(3), None)
    store.reports.finish(store.reports.open("1-aa", "token"), failures(10_000))
    store.reports.mark_tracked(OutcomePolicy())
    store.runs.begin(Run(owner=OWNER, kind=SPARK, session_timeout_ms=10_000))
    entry = HistoryEntry(time_ms=1, positions={"a": TRIM_HORIZON}, full=True)
    store.history.write(store.history.index(), entry)
    store.pause.begin(Pause(by="ann"))
    with pytest.raises(OwnedByAnotherError, match="4242"):
        store_world.open().identity.reset(OTHER, timeout_s=0)
    assert store.shard_states.load()
    store_world.lose_session(store)
    assert store_world.open().identity.reset(OTHER, timeout_s=10) == 1
    with pytest.raises(StaleOwnerError):
        store.shard_states.save([StateChange(None, state_at(1))])
    fresh = store_world.open()
    assert fresh.shard_states.load() == {}
    assert fresh.identity.read() is None
    assert fresh.shard_list.read() is None
    assert fresh.plans.known() == []
    assert (fresh.reports.read_policy(), fresh.pause.read(), fresh.runs.read()) == (None, None, {})
    assert fresh.history.index() == HistoryIndex()
    assert fresh.ownership.holders() == {}
    assert fresh.identity.read_reset() == fresh.view.read().reset == OTHER
    assert fresh.ownership.acquire(OWNER, timeout_s=0) == 3


def test_applications_do_not_see_each_other(store_world: StoreWorld) -> None:
    store = owned(store_world)
    store.shard_states.save([StateChange(None, state_at(1))])
    store_world.renew()
    assert store_world.open().shard_states.load() == {}


STATE, REPORT, MARK = "shardId-000000000003/state", "batches/1-aa/report", "tracked"
NEWER = r"has format 2, written by a newer version.*up to 1; upgrade kinesis-spout"
BAD_ROW = b"""{"token":"t","status":"done","report":{},
    "outcomes":{"shards":[{"shardId":"s","unresolved":[["x",1,1]]}]}}"""
BAD_POLICY = b"""{"retryLimit":-1,"firstDelayMs":1,"growth":1,"maxDelayMs":1,"jitter":0,
    "onFailure":"continue"}"""


@pytest.mark.parametrize(
    ("path", "stored", "said"),
    [
        *((STATE, data, "") for data in (b"", b"[]", b'{"checkpoint":"abc"}', b'{"format":1}')),
        (STATE, b'{"format":2,"checkpoint":{"new":"shape"}}', NEWER),
        (REPORT, b"", ""),
        (REPORT, b'{"token":"t","status":"half"}', ""),
        (REPORT, b'{"token":"t","status":"done"}', ""),
        (REPORT, BAD_ROW, ""),
        (REPORT, b'{"token":"t","status":"done","report":{},"parts":2}', ""),
        (REPORT, b'{"format":2,"status":"done","outcomes":7}', NEWER),
        (MARK, b"", ""),
        (MARK, b"{}", ""),
        (MARK, BAD_POLICY, ""),
        (MARK, b'{"format":2}', NEWER),
    ],
)
def test_damaged_or_newer_bytes_are_an_error_and_never_nothing(
    store_world: StoreWorld, path: str, stored: bytes, said: str
) -> None:
    """The error names the path. A newer version may have given the fields another meaning, so none
    of them is used. If a mark was taken for missing, whole batches would be acked. A batch may
    still run again over a report.
    """
    owned(store_world).plans.create(plan(1))
    store_world.put(path, stored)
    store = store_world.open()
    read: dict[str, Callable[[], object]] = {
        STATE: store.shard_states.load,
        REPORT: lambda: store.reports.read("1-aa"),
        MARK: store.reports.read_policy,
    }
    with pytest.raises(StoredDataError, match=f"flights/{path}.*{said}"):
        read[path]()
    if path == REPORT:
        store.reports.finish(store.reports.open("1-aa", "token"), failures(1))
        assert store.reports.read("1-aa") == failures(1)
