"""The contract of the state store (`state/state_store.py`), held by the store in memory and by ZooKeeper alike."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import strategies as st

from state.errors import (
    CheckpointRegressionError,
    ConflictError,
    InvalidStoreSettingError,
    OwnedByAnotherError,
    PlanClosedError,
    StaleOwnerError,
    StateTooLargeError,
    StoredDataError,
    StreamMismatchError,
)
from state.plan import Plan, PlanPointer, PlanStatus, ShardEnd, ShardSlice, TaskEnd, TaskPlan, make_plan_id
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState
from state.shard_znodes import split_changes
from state.state_store import OwnerInfo, StartPin, StateChange, StoredState, StreamIdentity
from tests.support import state_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.znode_state_store import ZnodeStateStore
    from tests.support.state_stores import StoreWorld

OWNER = OwnerInfo(host="host-a", pid=4242, since_ms=1_357_000_000_000)
OTHER = OwnerInfo(host="host-b", pid=4343, since_ms=1_357_000_000_000)
IDENTITY = StreamIdentity(arn="arn:aws:kinesis:eu-west-1:1:stream/flights", name="flights", created_ms=1_000)


@pytest.fixture(scope="session")
def many_states() -> list[list[ShardState]]:
    return state_values.sample(st.lists(state_values.shard_states(), max_size=4, unique_by=lambda state: state.shard_id), 20)


@pytest.fixture(scope="session")
def many_plans() -> list[tuple[Plan, list[TaskEnd]]]:
    return state_values.sample(st.tuples(state_values.plans, st.lists(state_values.task_ends, max_size=3)), 20)


def sequence(number: int) -> SequenceNumber:
    return SequenceNumber(number)


def state_at(number: int, shard_id: str = "shardId-000000000000") -> ShardState:
    return ShardState(shard_id=shard_id, checkpoint=sequence(number), read_position=Position.after(sequence(number)))


def plan(number: int, nonce: str = "aa", tasks: int = 2) -> Plan:
    task = TaskPlan(
        shards=(ShardSlice(shard_id="shardId-000000000000", position=TRIM_HORIZON, max_records=10),),
        max_bytes=1,
        fetch_time_ms=2,
        fetch_cap_ms=3,
    )
    return Plan(plan_id=make_plan_id(number, nonce), created_ms=5, tasks=(task,) * tasks)


def end(token: str, count: int = 3) -> TaskEnd:
    return TaskEnd(
        token=token, shards=(ShardEnd(shard_id="shardId-000000000000", first=sequence(1), last=sequence(9), count=count),)
    )


def owned(world: StoreWorld, owner: OwnerInfo = OWNER) -> ZnodeStateStore:
    store = world.open()
    store.acquire(owner, timeout_s=10)
    return store


# ownership ----------------------------------------------------------------------------------------------------
def test_each_new_owner_counts_the_epoch_up(store_world: StoreWorld) -> None:
    """Epochs of successive owners are 1, 2, 3."""
    epochs = []
    for _ in range(3):
        store = store_world.open()
        epochs.append(store.acquire(OWNER, timeout_s=5))
        store.release()
    assert epochs == [1, 2, 3]


def test_acquiring_what_is_held_changes_nothing(store_world: StoreWorld) -> None:
    """A second acquire by the holder returns the epoch that it has."""
    store = owned(store_world)
    assert store.acquire(OWNER, timeout_s=0) == 1


def test_a_live_holder_is_named_to_the_second_owner(store_world: StoreWorld) -> None:
    """Who holds it, and what to do, is in the error; the holder goes on undisturbed."""
    first = owned(store_world)
    with pytest.raises(OwnedByAnotherError, match=r"process 4242 on host-a, since 2013-01-01T00:26:40Z; stop that one"):
        store_world.open().acquire(OTHER, timeout_s=0.2)
    first.save_states([StateChange(None, state_at(1))])


def test_the_second_owner_gets_it_when_the_first_lets_go(store_world: StoreWorld) -> None:
    """A waiting owner is woken by the release, long before its time is up."""
    first = owned(store_world)
    second = store_world.open()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.acquire, OTHER, timeout_s=60)
        assert not waiting.done()
        first.release()
        assert waiting.result(timeout=30) == 2
    assert second.read_owner() == OTHER


def test_a_stale_owner_writes_nothing_at_all(store_world: StoreWorld) -> None:
    """After a takeover every write of the old owner is refused, also of shards that the new owner has not touched."""
    old = owned(store_world)
    known = old.save_states([StateChange(None, state_at(1))])[0]
    old.create_plan(plan(1))
    store_world.lose_session(old)
    new = owned(store_world, OTHER)
    writes: list[Callable[[], object]] = [
        lambda: old.save_states([StateChange(known, state_at(2))]),
        lambda: old.save_states([StateChange(None, state_at(2, "shardId-000000000007"))]),
        lambda: old.save_shard_list(["shardId-000000000000"]),
        lambda: old.bind_stream(IDENTITY),
        lambda: old.create_plan(plan(2)),
        lambda: old.close_plan("1-aa"),
        lambda: old.mark_settled("1-aa"),
        lambda: old.acquire(OWNER, timeout_s=0),
    ]
    for write in writes:
        with pytest.raises((StaleOwnerError, ConflictError)) as refused:
            write()
        assert refused.type is StaleOwnerError or "open" in str(refused.value)
    assert new.load_states() == {known.state.shard_id: known}
    assert new.read_pointer() == PlanPointer("1-aa", PlanStatus.OPEN)
    assert new.read_shard_list() is None
    assert new.read_stream() is None


def test_an_overtaken_owner_may_begin_anew_after_a_release(store_world: StoreWorld) -> None:
    """What it knew is old, so it has to say that it forgets it."""
    old = owned(store_world)
    store_world.lose_session(old)
    new = owned(store_world, OTHER)
    with pytest.raises(StaleOwnerError, match="another process has taken over"):
        old.save_shard_list(["a"])
    new.release()
    old.release()
    assert old.acquire(OWNER, timeout_s=5) == 3


def test_a_lost_session_is_regained_by_the_next_write(store_world: StoreWorld) -> None:
    """Nobody has taken over, so the owner goes on under the same epoch, and is seen to be the owner again."""
    store = owned(store_world)
    known = store.save_states([StateChange(None, state_at(1))])[0]
    store_world.lose_session(store)
    assert store.save_states([StateChange(known, state_at(2))])[0].version == known.version + 1
    assert store.read_owner() == OWNER
    assert store.acquire(OWNER, timeout_s=0) == 1


def test_one_who_never_acquired_writes_nothing(store_world: StoreWorld) -> None:
    """Owner writes without ownership are refused."""
    with pytest.raises(StaleOwnerError, match="acquire it first"):
        store_world.open().save_states([StateChange(None, state_at(1))])


def test_closing_gives_the_ownership_up(store_world: StoreWorld) -> None:
    """Close is idempotent, and the next owner need not wait."""
    store = owned(store_world)
    store.close()
    store.close()
    assert store_world.open().acquire(OTHER, timeout_s=5) == 2


# identity and start -------------------------------------------------------------------------------------------
def test_a_stream_made_anew_under_its_name_is_refused_with_the_command_that_helps(store_world: StoreWorld) -> None:
    """The same stream binds again; another creation time is another stream."""
    store = owned(store_world)
    store.bind_stream(IDENTITY)
    store.bind_stream(IDENTITY)
    again = msgspec.structs.replace(IDENTITY, created_ms=2_000)
    with pytest.raises(
        StreamMismatchError, match=r"deleted and created again.*kinesis-spout reset --application \S+ --stream flights"
    ):
        store.bind_stream(again)
    assert store.read_stream() == IDENTITY


def test_another_stream_is_refused_naming_both(store_world: StoreWorld) -> None:
    """The state of one stream is never used for another."""
    store = store_world.open()
    store.bind_stream(IDENTITY)
    other = msgspec.structs.replace(IDENTITY, arn="arn:aws:kinesis:us-east-1:1:stream/flights")
    with pytest.raises(StreamMismatchError, match=f"{IDENTITY.arn}, not of {other.arn}"):
        store.bind_stream(other)


def test_the_start_is_pinned_once(store_world: StoreWorld) -> None:
    """The first pin holds for everybody, without ownership."""
    first = StartPin(time_ms=1, wish="LATEST", position=Position.at_timestamp(1), shards=("a", "b"))
    second = StartPin(time_ms=2, wish="TRIM_HORIZON", position=TRIM_HORIZON, shards=())
    assert store_world.open().read_start() is None
    assert store_world.open().pin_start(first) == first
    assert store_world.open().pin_start(second) == first
    assert store_world.open().read_start() == first


def test_concurrent_pins_agree(store_world: StoreWorld) -> None:
    """Four processes pin different starts at once: all get the same one."""
    pins = [StartPin(time_ms=number, wish="LATEST", position=TRIM_HORIZON, shards=()) for number in range(4)]
    stores = [store_world.open() for _ in pins]
    with ThreadPoolExecutor(len(pins)) as pool:
        held = list(pool.map(lambda pair: pair[0].pin_start(pair[1]), zip(stores, pins, strict=True)))
    assert len(set(map(str, held))) == 1


# shard states -------------------------------------------------------------------------------------------------
def test_shard_states_come_back_as_they_were_written(store_world: StoreWorld, many_states: list[list[ShardState]]) -> None:
    """Every field survives, also the checkpoint of a finished shard, which is shown as SHARD_END."""
    for states in many_states:
        store_world.renew()
        store = owned(store_world)
        saved = store.save_states([StateChange(None, state) for state in states])
        assert [each.state for each in saved] == states
        assert store_world.open().load_states() == {each.state.shard_id: each for each in saved}


def test_a_state_is_written_over_its_own_version_only(store_world: StoreWorld) -> None:
    """Compare-and-set: what somebody has changed since is not overwritten, nor is the rest of the transaction written."""
    store = owned(store_world)
    first, other = store.save_states([StateChange(None, state_at(1)), StateChange(None, state_at(1, "shardId-000000000001"))])
    second = store.save_states([StateChange(first, state_at(2))])[0]
    with pytest.raises(ConflictError, match="shardId-000000000000/state was changed by somebody else"):
        store.save_states([StateChange(other, state_at(3, "shardId-000000000001")), StateChange(first, state_at(3))])
    with pytest.raises(ConflictError, match="was created by somebody else"):
        store.save_states([StateChange(None, state_at(4))])
    assert store.load_states() == {"shardId-000000000000": second, "shardId-000000000001": other}


def test_a_checkpoint_never_moves_back(store_world: StoreWorld) -> None:
    """Not to a lower number, not to none, and not from SHARD_END to a number."""
    store = owned(store_world)
    known = store.save_states([StateChange(None, state_at(10))])[0]
    shard_id = known.state.shard_id
    for worse in (state_at(9), ShardState(shard_id=shard_id, read_position=TRIM_HORIZON)):
        with pytest.raises(CheckpointRegressionError, match=r"shardId-000000000000 would move back from 10 to"):
            store.save_states([StateChange(known, worse)])
    finished = msgspec.structs.replace(known.state, lifecycle=Lifecycle.FINISHED, read_position=SHARD_END)
    known = store.save_states([StateChange(known, finished)])[0]
    with pytest.raises(CheckpointRegressionError, match="SHARD_END"):
        store.save_states([StateChange(known, state_at(11))])
    assert store.load_states() == {shard_id: known}


def test_a_finished_shard_shows_shard_end(store_world: StoreWorld) -> None:
    """The ancestor's key says SHARD_END, for people and for its tools."""
    store = owned(store_world)
    state = ShardState(shard_id="s", checkpoint=sequence(7), read_position=SHARD_END, lifecycle=Lifecycle.FINISHED)
    store.save_states([StateChange(None, state)])
    assert msgspec.json.decode(store_world.get("s/state"))["checkpoint"] == "SHARD_END"


def test_the_ancestors_checkpoint_is_taken_over(store_world: StoreWorld) -> None:
    """`{"checkpoint": "<seq>"}` means: acked up to it, read on after it. It can be written over."""
    store_world.put("shardId-000000000003/state", b'{"checkpoint":"4955"}')
    store_world.put("shardList", b'{"shardList":["shardId-000000000003"]}')
    store = owned(store_world)
    known = store.load_states()["shardId-000000000003"]
    assert known.state == state_at(4955, "shardId-000000000003")
    assert store.read_shard_list() == ["shardId-000000000003"]
    store.save_states([StateChange(known, state_at(5000, "shardId-000000000003"))])
    assert store.load_states()["shardId-000000000003"].state.checkpoint == sequence(5000)


@pytest.mark.parametrize(
    "stored", [b"", b"{", b"\xff\xfe", b"[]", b'{"checkpoint":"abc"}', b"{}", b'{"format":1}', b'{"checkpoint":5}']
)
def test_damaged_state_is_an_error_and_never_no_checkpoint(store_world: StoreWorld, stored: bytes) -> None:
    """The error names the path."""
    store_world.put("shardId-000000000003/state", stored)
    with pytest.raises(StoredDataError, match=r"flights/shardId-000000000003/state"):
        store_world.open().load_states()


def test_a_newer_format_says_what_to_do(store_world: StoreWorld) -> None:
    """A newer version may have given the fields another meaning, so nothing of it is used."""
    store_world.put("shardId-000000000003/state", b'{"format":2,"checkpoint":{"new":"shape"}}')
    with pytest.raises(StoredDataError, match=r"has format 2, written by a newer version.*up to 1; upgrade kinesis-spout"):
        store_world.open().load_states()


def test_no_state_at_all_is_empty(store_world: StoreWorld) -> None:
    """A fresh application has no states, no plan, no start."""
    store = store_world.open()
    assert store.load_states() == {}
    assert store.read_pointer() is None
    assert store.known_plans() == []
    assert store.read_owner() is None


def test_too_many_states_for_one_write_are_refused_whole(store_world: StoreWorld) -> None:
    """501 states are too many; `split_changes` says how many go at a time."""
    store = owned(store_world)
    changes = [StateChange(None, state_at(1, f"shardId-{number:012}")) for number in range(501)]
    with pytest.raises(StateTooLargeError, match="501 shard states"):
        store.save_states(changes)
    assert store.load_states() == {}
    assert [len(store.save_states(part)) for part in split_changes(changes)] == [500, 1]
    assert len(store.load_states()) == 501


def test_a_shard_twice_in_one_write_is_a_mistake(store_world: StoreWorld) -> None:
    """Two changes of one shard cannot both be based on what is stored."""
    store = owned(store_world)
    with pytest.raises(ValueError, match="occurs twice"):
        store.save_states([StateChange(None, state_at(1)), StateChange(None, state_at(2))])
    known = store.save_states([StateChange(None, state_at(1))])[0]
    with pytest.raises(ValueError, match="based on shard"):
        store.save_states([StateChange(known, state_at(2, "shardId-000000000009"))])


def test_a_shard_cannot_hide_another_node(store_world: StoreWorld) -> None:
    """Shard ids that are names of something else in the layout are refused."""
    store = owned(store_world)
    for name in ("plan", "epoch", "a/b", "..", ""):
        with pytest.raises(InvalidStoreSettingError):
            store.save_states([StateChange(None, state_at(1, name))])


def test_the_list_of_shards_is_stored_as_the_ancestor_did(store_world: StoreWorld) -> None:
    """Writing it again replaces it."""
    store = owned(store_world)
    store.save_shard_list(["a"])
    store.save_shard_list(["a", "b"])
    store.save_shard_list(["a", "b"])
    assert msgspec.json.decode(store_world.get("shardList")) == {"shardList": ["a", "b"]}


# plans --------------------------------------------------------------------------------------------------------
def test_plans_and_ends_come_back_as_they_were_written(
    store_world: StoreWorld, many_plans: list[tuple[Plan, list[TaskEnd]]]
) -> None:
    """Every field survives; a task reads its own part."""
    for plan, ends in many_plans:
        store_world.renew()
        store = owned(store_world)
        store.create_plan(plan)
        published = dict(zip(range(len(plan.tasks)), ends, strict=False))
        for task, task_end in published.items():
            assert store.publish_end(plan.plan_id, task, task_end) == task_end
        reader = store_world.open()
        assert reader.read_plan(plan.plan_id) == plan
        assert [reader.read_task(plan.plan_id, task) for task in range(len(plan.tasks))] == list(plan.tasks)
        assert reader.read_ends(plan.plan_id) == published
        assert reader.read_task(plan.plan_id, len(plan.tasks)) is None


def test_a_plan_goes_from_open_to_closed_to_settled(store_world: StoreWorld) -> None:
    """`/plan` follows each step; steps repeated change nothing."""
    store = owned(store_world)
    store.create_plan(plan(1))
    seen = [store.read_pointer()]
    for step in (store.close_plan, store.close_plan, store.mark_settled, store.mark_settled, store.close_plan):
        step("1-aa")
        seen.append(store.read_pointer())
    statuses = [pointer.status for pointer in seen if pointer is not None]
    assert statuses == [PlanStatus.OPEN, PlanStatus.CLOSED, PlanStatus.CLOSED, *[PlanStatus.SETTLED] * 3]


def test_an_open_plan_is_not_settled(store_world: StoreWorld) -> None:
    """It has to be closed first, else an end could still come."""
    store = owned(store_world)
    store.create_plan(plan(1))
    with pytest.raises(ConflictError, match="close it first"):
        store.mark_settled("1-aa")


def test_only_the_newest_plan_is_closed_and_settled(store_world: StoreWorld) -> None:
    """A plan of the same number with another nonce is another plan."""
    store = owned(store_world)
    for act in (store.close_plan, store.mark_settled):
        with pytest.raises(ConflictError, match="there is no plan"):
            act("1-aa")
    store.create_plan(plan(1))
    for act in (store.close_plan, store.mark_settled):
        with pytest.raises(ConflictError, match=r"1-aa is \(open\)"):
            act("1-bb")


def test_plan_numbers_only_go_up(store_world: StoreWorld) -> None:
    """The number of a new plan is above all that the store knows; ids are listed by number, not by text."""
    store = owned(store_world)
    for number in (2, 9, 10):
        store.create_plan(plan(number))
    for number in (1, 9, 10):
        with pytest.raises(ConflictError, match="is not above plan 10"):
            store.create_plan(plan(number, "bb"))
    assert store.known_plans() == ["2-aa", "9-aa", "10-aa"]


def test_a_plan_left_behind_is_closed_by_the_next(store_world: StoreWorld) -> None:
    """No end can be published any more under a plan that was never settled."""
    store = owned(store_world)
    store.create_plan(plan(1))
    store.publish_end("1-aa", 0, end("early"))
    store.create_plan(plan(2))
    with pytest.raises(PlanClosedError, match="plan 1-aa is closed or gone"):
        store.publish_end("1-aa", 1, end("late"))
    assert store.read_pointer() == PlanPointer("2-aa", PlanStatus.OPEN)
    assert store.read_ends("1-aa") == {0: end("early")}


def test_a_plan_of_many_tasks_is_whole_or_unknown(store_world: StoreWorld) -> None:
    """1,200 tasks take several transactions; `/plan` moves with the last."""
    store = owned(store_world)
    store.create_plan(plan(1, tasks=1200))
    read = store.read_plan("1-aa")
    assert read == plan(1, tasks=1200)
    assert store.read_pointer() == PlanPointer("1-aa", PlanStatus.OPEN)
    store.create_plan(plan(2))
    store.remove_plan("1-aa")
    assert store.known_plans() == ["2-aa"]


def test_a_half_created_plan_is_no_plan_but_keeps_its_number(store_world: StoreWorld) -> None:
    """A driver that died between two transactions leaves a header with too few tasks."""
    store_world.put("batches/5-aa", b'{"createdMs":1,"tasks":2}')
    store_world.put("batches/5-aa/0", b'{"shards":[],"maxBytes":1,"fetchTimeMs":1,"fetchCapMs":1}')
    store = owned(store_world)
    assert store.read_plan("5-aa") is None
    assert store.known_plans() == ["5-aa"]
    with pytest.raises(ConflictError):
        store.create_plan(plan(5, "bb"))
    store.create_plan(plan(6))
    store.remove_plan("5-aa")
    assert store.known_plans() == ["6-aa"]


def test_two_attempts_of_a_task_get_the_same_end(store_world: StoreWorld) -> None:
    """Eight attempts publish at once: one wins, and all are told the winner's."""
    store = owned(store_world)
    store.create_plan(plan(1))
    ends = [end(f"token-{number}", count=number) for number in range(8)]
    executors = [store_world.open() for _ in ends]
    ready = threading.Barrier(len(ends))

    def publish(executor: ZnodeStateStore, mine: TaskEnd) -> TaskEnd:
        executor.read_end("1-aa", 0)
        ready.wait(timeout=30)
        return executor.publish_end("1-aa", 0, mine)

    with ThreadPoolExecutor(len(ends)) as pool:
        results = list(pool.map(publish, executors, ends))
    assert results == [results[0]] * len(ends)
    assert results[0] in ends
    assert store.read_ends("1-aa") == {0: results[0]}
    assert {executor.read_end("1-aa", 0) for executor in executors} == {results[0]}


def test_a_zombie_of_a_closed_plan_publishes_nothing(store_world: StoreWorld) -> None:
    """Neither where there is no end nor where there is another's; its own, published in time, it gets back."""
    store = owned(store_world)
    zombie = store_world.open()
    store.create_plan(plan(1))
    zombie.publish_end("1-aa", 0, end("mine"))
    store.close_plan("1-aa")
    with pytest.raises(PlanClosedError):
        zombie.publish_end("1-aa", 1, end("late"))
    with pytest.raises(PlanClosedError):
        zombie.publish_end("1-aa", 0, end("other"))
    assert zombie.publish_end("1-aa", 0, end("mine")) == end("mine")
    assert store.read_ends("1-aa") == {0: end("mine")}


def test_an_unknown_plan_or_task_creates_nothing(store_world: StoreWorld) -> None:
    """Parents are never created; a number used again with another nonce is not the same plan."""
    store = owned(store_world)
    store.create_plan(plan(1))
    for plan_id, task in (("1-bb", 0), ("7-aa", 0), ("1-aa", 99)):
        with pytest.raises(PlanClosedError):
            store.publish_end(plan_id, task, end("x"))
    assert store.known_plans() == ["1-aa"]
    assert store.read_ends("1-aa") == {}
    assert store.read_plan("1-bb") is None
    assert store.read_ends("1-bb") == {}


def test_ends_are_fenced_by_plan_and_not_by_epoch(store_world: StoreWorld) -> None:
    """A task of an open plan publishes also after the ownership has passed on: the new owner settles it."""
    old = owned(store_world)
    old.create_plan(plan(1))
    store_world.lose_session(old)
    new = owned(store_world, OTHER)
    assert store_world.open().publish_end("1-aa", 0, end("x")) == end("x")
    new.close_plan("1-aa")
    assert new.read_ends("1-aa") == {0: end("x")}


def test_an_end_that_does_not_fit_is_refused(store_world: StoreWorld) -> None:
    """Above 512 KB nothing is sent: a request above 1 MB would cost the connection."""
    store = owned(store_world)
    store.create_plan(plan(1))
    with pytest.raises(StateTooLargeError, match=r"batches/1-aa/0/end would hold 6\d\d\d\d\d bytes"):
        store.publish_end("1-aa", 0, end("x" * 600_000))
    assert store.publish_end("1-aa", 0, end("x")) == end("x")


def test_a_removed_plan_is_gone_and_the_newest_stays(store_world: StoreWorld) -> None:
    """Removing what is gone changes nothing; the plan of `/plan` is refused."""
    store = owned(store_world)
    store.create_plan(plan(1))
    store.publish_end("1-aa", 0, end("x"))
    store.create_plan(plan(2))
    store.remove_plan("1-aa")
    store.remove_plan("1-aa")
    assert store.known_plans() == ["2-aa"]
    assert store.read_plan("1-aa") is None
    assert store.read_end("1-aa", 0) is None
    with pytest.raises(ValueError, match="2-aa is the newest"):
        store.remove_plan("2-aa")


def test_a_text_that_is_no_plan_id_never_becomes_a_path(store_world: StoreWorld) -> None:
    """Ids come back from Spark's checkpoint, so they are checked."""
    for text in ("../owner", "", "1", "1-aa/0"):
        with pytest.raises(ValueError, match="not a plan id"):
            store_world.open().read_plan(text)


# reset --------------------------------------------------------------------------------------------------------
def test_a_reset_removes_everything_but_the_epoch(store_world: StoreWorld) -> None:
    """Afterwards the application is as fresh; one from before the reset still can write nothing."""
    store = owned(store_world)
    store.bind_stream(IDENTITY)
    store.save_states([StateChange(None, state_at(1))])
    store.save_shard_list(["shardId-000000000000"])
    store.create_plan(plan(1))
    store.publish_end("1-aa", 0, end("x"))
    store_world.lose_session(store)
    assert store_world.open().reset(OTHER, timeout_s=10) == 1
    with pytest.raises(StaleOwnerError):
        store.save_states([StateChange(None, state_at(1))])
    fresh = store_world.open()
    assert fresh.load_states() == {}
    assert fresh.read_stream() is None
    assert fresh.read_shard_list() is None
    assert fresh.known_plans() == []
    assert fresh.read_owner() is None
    assert fresh.acquire(OWNER, timeout_s=0) == 3


def test_a_reset_is_refused_while_another_lives(store_world: StoreWorld) -> None:
    """Nothing is removed under a running consumer."""
    store = owned(store_world)
    saved = store.save_states([StateChange(None, state_at(1))])[0]
    with pytest.raises(OwnedByAnotherError, match="4242"):
        store_world.open().reset(OTHER, timeout_s=0)
    assert store.load_states() == {saved.state.shard_id: saved}


def test_applications_do_not_see_each_other(store_world: StoreWorld) -> None:
    """The state of one application is invisible to another of the same stream."""
    store = owned(store_world)
    saved: StoredState = store.save_states([StateChange(None, state_at(1))])[0]
    assert saved.version == 0
    store_world.renew()
    assert store_world.open().load_states() == {}
