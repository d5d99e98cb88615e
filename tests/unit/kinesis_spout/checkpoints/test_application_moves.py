"""Moved shards on a FakeKinesis, applications that go back to where they were, and the job that
reads on from there.
"""

from __future__ import annotations

from contextlib import closing

import pytest
from msgspec.structs import replace

from kinesis_spout.application.history_recorder import MARGIN_MS
from kinesis_spout.checkpoints.application_moves import (
    ApplicationMove,
    Rewind,
    find_moves,
    find_rewind,
    read_history,
    write_moves,
)
from kinesis_spout.checkpoints.moves import Move, MoveRefusedError, RequestedPosition
from kinesis_spout.cli.checkpoint import move_lines
from kinesis_spout.errors import DataLossError
from kinesis_spout.testing import ManualClock, early_end
from kinesis_spout.testing.manual_clock import START_MS
from state.errors import InvalidPositionError, StreamMismatchError
from state.memory_store import MemoryBackend, MemoryStateStore, MemoryTree
from state.moves import earlier, past_at
from state.plan import PlanStatus
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.store.identity import StartPin, StreamIdentity
from state.store.shard_states import StateChange
from state.znodes.topics import StoreTopics
from tests.support.aggregates.wire import aggregate_of
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.simulated.simulated_driver import next_plan, pointer, read_all, rows_of, run
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated
from tests.support.state.trees import DyingTree

DAY_MS = 24 * 3600_000


def moved(job: SimulatedJob, to: str, *shards: str, write: bool = True) -> dict[str, Move]:
    """What `checkpoint set` does, by shard."""
    with closing(job.client()) as client, closing(job.store()) as store:
        if write:
            store.ownership.acquire(this_process(0), timeout_s=1)
        wanted = RequestedPosition.parse(to)
        found = find_moves(client, store, wanted, shards, clock=job.clock, max_counted=1000)
        if write:
            write_moves(store, found, job.clock.now_ms)
    return {one.after.shard_id: one for one in found.moves}


def run_job(job: SimulatedJob, start: str = "") -> tuple[str, list[int]]:
    """A run of the job from its start to where nothing is new: the last plan, what it read."""
    coordinator = job.coordinator()
    try:
        return read_all(job, coordinator, start)
    finally:
        coordinator.close()


def leave_unresolved(job: SimulatedJob, *failed: SequenceNumber) -> None:
    """As if these records of the first shard had failed."""
    with job.owned_store() as store:
        stored = store.shard_states.load()[shard(0)]
        records = tuple(
            UnresolvedRecord(first=one, last=one, attempts=1, due_ms=0) for one in failed
        )
        state = replace(stored.state, unresolved=records, checkpoint=None)
        store.shard_states.move([StateChange(before=stored, after=state)])


def effect(move: Move) -> tuple[str, str]:
    return str(move.skipped), str(move.repeated)


@pytest.mark.parametrize("skip", range(4))
def test_what_a_move_skips_and_repeats_is_counted_past_an_end_that_is_named_too_early(
    one: SimulatedJob, *, skip: int
) -> None:
    one.fake.insert_empty_pages(STREAM, shard(0), 2)
    numbers = one.put(6)
    plan, _ = run_job(one)
    one.fake.faults.add(early_end(), operation="GetRecords", skip=skip)
    assert effect(moved(one, "TRIM_HORIZON", shard(0))[shard(0)]) == ("0", "6")
    assert run_job(one, plan)[1] == numbers


def test_a_time_before_a_reshard_moves_each_generation(job: SimulatedJob) -> None:
    """The parent to the time, its children to their beginnings. A shard that was over before the
    time stays.
    """
    key = job.key_of(0)
    job.put(2, key=key)
    job.clock.advance(3600)
    parent = job.put(2, key=key)
    job.fake.split(STREAM, shard(0))
    job.clock.advance(3600)
    child = job.put(3, key=key)
    plan, _ = run_job(job)
    found = moved(job, "-90m")
    assert effect(found[shard(0)]) == ("0", "2")
    assert [str(found[shard(one)].repeated) for one in (2, 3)] in (["3", "0"], ["0", "3"])
    assert run_job(job, plan)[1] == parent + child
    late = moved(job, "-30m")
    assert late[shard(0)].after == late[shard(0)].before
    assert late[shard(0)].after.read_position == SHARD_END


def test_what_an_application_cannot_go_to_is_refused(one: SimulatedJob) -> None:
    """Where later records are there, a number that is not is a note: it has expired."""
    old = one.put(3)
    run_job(one)
    with pytest.raises(MoveRefusedError, match=r"\(SHARD_END\) is not known"):
        moved(one, "SHARD_END", shard(0))
    with pytest.raises(MoveRefusedError, match=f"did you mean {shard(0)}"):
        moved(one, "LATEST", "shardId-00000000000")
    for to in (f"AT:{old[-1] + 1000}", f"AFTER:{old[-1] + 1}"):
        with pytest.raises(MoveRefusedError, match=r"has no record \d+"):
            moved(one, to, shard(0))
    with pytest.raises(
        MoveRefusedError, match=r"has no record 5: its sequence numbers start at \d+"
    ):
        moved(one, "AT:5", shard(0))
    one.clock.advance(25 * 3600)
    with pytest.raises(MoveRefusedError, match="no later record"):
        moved(one, f"AT:{old[1]}", shard(0))
    young = one.put(2)
    move = moved(one, f"AT:{old[1]}", shard(0), write=False)[shard(0)]
    assert move.notes == (
        f"record {old[1]} has expired or was never in the shard; the oldest record is {young[0]}",
    )


@pytest.mark.parametrize("to", ["TRIM_HORIZON", "LATEST", "-1h", "AT"])
def test_unread_records_that_have_expired_are_neither_skipped_nor_repeated_but_gone(
    one: SimulatedJob, to: str
) -> None:
    """Only those that are there are counted. The move says from when to when others came."""
    one.put(3)
    run_job(one)
    one.put(4)
    one.clock.advance(26 * 3600)
    young = one.put(2)
    one.clock.advance(60)
    horizon_ms = one.clock.now_ms() - DAY_MS
    position = f"AT:{young[1]}" if to == "AT" else to
    move = moved(one, position, shard(0))[shard(0)]
    skipped = {"LATEST": "2", "AT": "1"}.get(to, "0")
    assert effect(move) == (skipped, "0")
    assert move.expired_ms is not None
    assert START_MS <= move.expired_ms[0] < START_MS + 60_000
    assert move.expired_ms[1] == horizon_ms
    since, until = map(Position.at_timestamp, move.expired_ms)
    assert list(move_lines(move))[4] == (
        f"  unread records that arrived from {since} to {until} have expired"
    )


def vanished_parent(job: SimulatedJob) -> list[int]:
    """Shard 0 was not read to its end before it expired: the records of its children."""
    coordinator = job.coordinator()
    next_plan(coordinator)
    coordinator.close()
    job.put(3, key=job.key_of(0))
    key = job.key_of(0)
    job.fake.split(STREAM, shard(0))
    job.clock.advance(50 * 3600)
    return job.put(4, key=key)


def test_the_loss_of_a_shard_that_has_vanished_is_accepted_and_its_children_are_read(
    job: SimulatedJob,
) -> None:
    """By name, too. No job reports it again, in the next days either."""
    put = vanished_parent(job)
    with pytest.raises(DataLossError):
        run_job(job)
    assert shard(0) in moved(job, "TRIM_HORIZON", shard(0), write=False)
    moves = moved(job, "TRIM_HORIZON")
    gone = moves[shard(0)]
    assert (gone.accepts_loss, gone.after.lifecycle) == (True, Lifecycle.FINISHED)
    assert gone.notes == (
        "the stream no longer lists the shard, so its unread records cannot be read",
    )
    assert any("records that arrived from 2026-01-01T" in line for line in move_lines(gone))
    assert not any(one.accepts_loss for one in moved(job, "TRIM_HORIZON").values())
    plan, read = run_job(job)
    assert read == put
    for _ in range(3):
        job.clock.advance(20 * 3600)
        plan, read = run_job(job, plan)
        assert read == []


@pytest.mark.parametrize("lost", ["children", "a shard of the start", "a parent"])
def test_the_loss_of_shards_that_nobody_has_seen_is_accepted(job: SimulatedJob, lost: str) -> None:
    """A job would report it at each start."""
    listed = (shard(0), shard(1))
    with job.owned_store() as store:
        shards = (*listed, shard(9)) if lost == "a shard of the start" else listed
        if lost == "a parent":
            job.fake.split(STREAM, shard(0))
        store.identity.pin_start(
            StartPin(time_ms=START_MS, requested="", position=TRIM_HORIZON, shards=shards)
        )
        if lost == "children":
            finished = ShardState(
                shard_id=shard(9),
                read_position=SHARD_END,
                verified_until_ms=START_MS,
            )
            store.shard_states.save([StateChange(before=None, after=finished)])
    if lost == "a parent":  # its children were split in their turn, and it has expired since
        job.fake.split(STREAM, shard(2))
        job.clock.advance(50 * 3600)
    job.clock.advance(30 * 3600)
    with pytest.raises(DataLossError):
        run_job(job)
    moves = moved(job, "TRIM_HORIZON")
    assert any(one.gone for one in moves.values())
    plan = ""
    for _ in range(3):
        plan, read = run_job(job, plan)
        assert read == []
        job.clock.advance(20 * 3600)


def test_unresolved_records_that_have_expired_are_not_dropped(one: SimulatedJob) -> None:
    """They become dead letters; only what is left is read again."""
    old = one.put(2)
    one.clock.advance(23 * 3600)
    young = one.put(2)
    run_job(one)
    leave_unresolved(one, SequenceNumber(old[0]), SequenceNumber(young[1]))
    one.clock.advance(2 * 3600)
    move = moved(one, "TRIM_HORIZON")[shard(0)]
    assert [str(each.first) for each in move.after.unresolved] == [str(old[0])]
    assert move.after.read_position == Position.at(SequenceNumber(young[0]))
    assert move.notes == (
        "the oldest unresolved records of the shard have expired; these records stay unresolved",
    )


def test_an_open_plan_is_closed_and_never_settled_into_a_moved_shard(one: SimulatedJob) -> None:
    """Not where the shard is moved, and not where it is moved to where the plan has read from."""
    numbers = one.put(3)
    coordinator = one.coordinator()
    plan = next_plan(coordinator)
    assert run(one, coordinator, plan) == numbers
    coordinator.close()
    moved(one, f"AT:{numbers[1]}", shard(0))
    assert pointer(one).status is PlanStatus.CLOSED
    moved(one, "TRIM_HORIZON", shard(0))  # where the plan has read from
    assert one.states()[shard(0)].settled_plan == plan
    assert run_job(one, plan)[1] == numbers


REFUSED = Position.parse("AT:123")


def stand_at(job: SimulatedJob, position: Position) -> None:
    """As an earlier version has left an application whose start the service refuses: pinned, and in
    the state of each shard.
    """
    with closing(job.store()) as store, closing(job.client()) as client:
        shards = tuple(one.shard_id for one in client.list_shards())
        store.ownership.acquire(this_process(0), timeout_s=1)
        store.identity.pin_start(
            StartPin(time_ms=START_MS, requested=str(position), position=position, shards=shards)
        )
        states = [ShardState(shard_id=one, read_position=position) for one in shards]
        store.shard_states.save([StateChange(before=None, after=one) for one in states])


@pytest.mark.parametrize(
    ("to", "skipped", "left"), [("TRIM_HORIZON", "0", 4), ("LATEST", "4", 0), ("AFTER", "2", 2)]
)
def test_a_shard_that_stands_where_the_service_refuses_to_read_is_moved_like_every_other(
    one: SimulatedJob, to: str, skipped: str, left: int
) -> None:
    """Nothing was read from there, so its records count as unread."""
    numbers = one.put(4)
    stand_at(one, REFUSED)
    one.clock.advance(60)
    move = moved(one, f"AFTER:{numbers[1]}" if to == "AFTER" else to, shard(0))[shard(0)]
    assert (effect(move), move.before.read_position) == ((skipped, "0"), REFUSED)
    assert move.notes == (
        "Kinesis refuses the shard's position AT:123. All records of the shard count as unread",
    )
    assert run_job(one)[1] == numbers[len(numbers) - left :]


def test_the_state_of_another_stream_is_refused(one: SimulatedJob) -> None:
    with closing(one.store()) as store:
        store.identity.bind(StreamIdentity(arn="arn:another", name=STREAM, created_ms=1))
    with pytest.raises(StreamMismatchError, match="belongs to stream arn:another"):
        moved(one, "LATEST")


def test_a_time_older_than_the_retention_is_the_oldest_record() -> None:
    """Stored as TRIM_HORIZON: whatever expires until the job runs is not missed."""
    with simulated(shards=1) as one:
        one.put(2)
        run_job(one)
        one.clock.advance(30 * 3600)
        horizon_ms = one.clock.now_ms() - DAY_MS
        move = moved(one, "-29h")[shard(0)]
        assert move.after.read_position == TRIM_HORIZON
        assert move.lost_until_ms == horizon_ms
        assert any("arrived before" in line for line in move_lines(move))


@pytest.mark.parametrize(("kind", "first"), [("AT", 2), ("AFTER", 3)])
def test_a_position_within_an_aggregate_goes_on_within_it(
    one: SimulatedJob, kind: str, first: int
) -> None:
    """Its user records before the position are not repeated, and one that had failed stays."""
    users = [f"user {number}".encode() for number in range(5)]
    (aggregate,) = one.put(1, data=aggregate_of(users))
    (plain,) = one.put(1, data=b"plain")
    plan, _ = run_job(one)
    leave_unresolved(one, SequenceNumber(aggregate, 1), SequenceNumber(aggregate, 4))
    move = moved(one, f"{kind}:{aggregate}.2", shard(0))[shard(0)]
    assert (effect(move), move.dropped) == (("0", "2"), 1)
    assert effect(moved(one, f"AT:{aggregate}.4", shard(0), write=False)[shard(0)]) == ("1", "0")
    coordinator = one.coordinator()
    rows = rows_of(one, coordinator, next_plan(coordinator, plan))
    read = [(int(row["sequenceNumber"]), row["subSequenceNumber"]) for row in rows]
    assert sorted(read) == [
        (aggregate, 1),
        *((aggregate, sub) for sub in range(first, 5)),
        (plain, 0),
    ]


def acquire_and_write(store: StoreTopics, found: ApplicationMove) -> None:
    store.ownership.acquire(this_process(0), timeout_s=1)
    write_moves(store, found, ManualClock().now_ms)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("writes", range(5))
def test_a_move_that_is_killed_leaves_each_shard_before_or_after(
    writes: int,
    after: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    """Before or after any of its writes; none of the shards is lost. The history is nowhere ahead
    of the states.
    """
    backend = MemoryBackend()
    store = MemoryStateStore(backend)
    store.ownership.acquire(this_process(0), timeout_s=1)
    read = ShardState(shard_id="", read_position=Position.after(SequenceNumber(9)))
    states = [replace(read, shard_id=f"shard-{number}") for number in range(1_100)]
    stored = {
        each.state.shard_id: each
        for each in store.shard_states.save(
            [StateChange(before=None, after=state) for state in states]
        )
    }
    found = ApplicationMove(
        cause="set",
        moves=[Move(before=one, after=replace(one, read_position=TRIM_HORIZON)) for one in states],
        stored=stored,
    )
    store.close()
    tree = DyingTree(MemoryTree(backend), writes, after=after)
    dying = StoreTopics(tree, store.paths, reset_command="")
    with pytest.raises(Crash):
        acquire_and_write(dying, found)
    tree.close()
    looking = MemoryStateStore(backend)
    left = {shard: each.state for shard, each in looking.shard_states.load().items()}
    assert left.keys() == stored.keys()
    past = past_at(read_history(looking.history), ManualClock().now_ms() + MARGIN_MS)
    told = {} if past is None else past.positions
    assert all(earlier(at, left[shard].read_position) == at for shard, at in told.items())
    assert told or left == {shard: each.state for shard, each in stored.items()}
    moves = {one.after.shard_id: one for one in found.moves}
    assert all(state in (moves[shard].before, moves[shard].after) for shard, state in left.items())
    is_done = sum(left[shard] == moves[shard].after for shard in left)
    assert is_done == {0: 0, 1: 500, 2: 1000, 3: 1100}[max(0, writes - 2 + after)]


def rewound(job: SimulatedJob, to_ms: int, *, write: bool = True) -> Rewind:
    """What `checkpoint rewind` does."""
    with closing(job.client()) as client, closing(job.store()) as store:
        if write:
            store.ownership.acquire(this_process(0), timeout_s=1)
        wanted = RequestedPosition.parse(str(Position.at_timestamp(to_ms)))
        found = find_rewind(client, store, wanted, clock=job.clock, max_counted=1000)
        if write:
            write_moves(store, found, job.clock.now_ms)
    return found


class Run:
    """A job that is started and stopped, and keeps its old checkpoint location."""

    def __init__(self, job: SimulatedJob) -> None:
        self.job = job
        self.plan = ""

    def read(self) -> list[int]:
        """A run to where nothing is new. Afterwards a minute passes."""
        coordinator = self.job.coordinator()
        try:
            self.plan, read = read_all(self.job, coordinator, self.plan)
            self.job.clock.advance(10)  # it is idle, and writes its history
            assert next_plan(coordinator, self.plan) == self.plan
        finally:
            coordinator.close()
        self.job.clock.advance(60)
        return read

    def now_ms(self) -> int:
        return self.job.clock.now_ms()


def test_a_start_that_was_imported_since_is_not_where_a_younger_shard_begins(
    one: SimulatedJob,
) -> None:
    """It says where shards without a state start from now on, and nothing of the time before."""
    run_ = Run(one)
    one.put(2)
    run_.read()
    then_ms = run_.now_ms()
    one.fake.split(STREAM, shard(0))
    late = one.put(3)
    assert run_.read() == late
    with one.owned_store() as store:
        now_ms = run_.now_ms()
        imported = StartPin(
            time_ms=now_ms,
            requested="LATEST",
            position=Position.at_timestamp(now_ms),
            shards=tuple(store.shard_states.load()),
        )
        store.identity.replace_start(imported)
    rewound(one, then_ms)
    assert run_.read() == late


def test_nobody_knows_where_an_application_was_before_its_history(one: SimulatedJob) -> None:
    """The command says what to do instead, as for an application of an older version."""
    run_ = Run(one)
    start_ms = run_.now_ms()
    one.put(1)
    one.clock.advance(3600)
    run_.read()
    with pytest.raises(
        MoveRefusedError,
        match=r"starts only at .* `kinesis-spout checkpoint set --to 20",
    ):
        rewound(one, start_ms)
    with pytest.raises(MoveRefusedError, match="in the future"):
        rewound(one, run_.now_ms() + 1_000)
    with closing(one.store()) as store:
        one.backend.remove(
            path for path in one.backend.nodes("") if path.startswith(store.paths.history)
        )
    with pytest.raises(
        MoveRefusedError, match=r"no stored .*history.* `kinesis-spout checkpoint set --to 20"
    ):
        rewound(one, start_ms)


def test_a_shard_that_is_not_listed_any_more_is_named(one: SimulatedJob) -> None:
    """With the position that it cannot go back to, also when its state was removed."""
    run_ = Run(one)
    numbers = one.put(2)
    run_.read()
    then_ms = run_.now_ms()
    one.put(2)
    one.fake.split(STREAM, shard(0))
    for _ in range(2):
        one.clock.advance(13 * 3600)
        run_.read()
    assert shard(0) not in {each.shard_id for each in one.fake.shards(STREAM)}
    with closing(one.store()) as store:
        oldest = read_history(store.history)[0].time_ms
    found = rewound(one, max(then_ms, oldest), write=False)
    assert found.lost == {shard(0): Position.after(SequenceNumber(numbers[-1]))}


@pytest.mark.parametrize(
    ("text", "time"),
    [("14:00", "14:00:00Z"), ("9:05:07", "09:05:07Z"), ("14:00+09:00", "05:00:00Z")],
)
def test_a_time_of_today_is_a_position(text: str, time: str) -> None:
    wanted = RequestedPosition.parse(text)
    assert (wanted.is_time, wanted.belongs_to_one_shard) == (True, False)
    found = wanted.at(1_772_625_600_000)  # 2026-03-04T12:00:00Z
    assert found == Position.parse(f"2026-03-04T{time}")
    for other in ("24:00", "14:60", "14", "14:00+25:00"):
        with pytest.raises(InvalidPositionError):
            RequestedPosition.parse(other)
