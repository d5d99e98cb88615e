"""What an import does to the shards of an application. Killed at any of its writes, it leaves the
application as before, or says so.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.checkpoints.application_moves import find_moves, write_moves
from kinesis_spout.checkpoints.migration import storm_spout
from kinesis_spout.checkpoints.migration.import_plan import find_import
from kinesis_spout.checkpoints.moves import RequestedPosition
from kinesis_spout.checkpoints.transfer import (
    check_positions,
    check_states,
    export_application,
    import_application,
    moving_forward,
)
from kinesis_spout.errors import DataLossError
from kinesis_spout.testing.service import requests
from state.codec.exported import ExportedApplication
from state.errors import StoredDataError, UnfinishedImportError
from state.memory_store import MemoryBackend, MemoryStateStore, MemoryTree
from state.position import TRIM_HORIZON, Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.identity import StartPin
from state.store.shard_states import StoredState
from state.znodes.topics import StoreTopics
from state.znodes.tree import Create, ensure
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.simulated.simulated_driver import read_all
from tests.support.simulated.simulated_job import STREAM, shard, simulated
from tests.support.state.shard_values import waiting
from tests.support.state.trees import DyingTree

if TYPE_CHECKING:
    from state.znodes.tree import ZnodeTree
    from tests.support.simulated.simulated_job import SimulatedJob


def state(position: str, *unresolved: int) -> ShardState:
    return ShardState(
        shard_id="a",
        read_position=Position.parse(position),
        unresolved=tuple(map(waiting, unresolved)),
    )


@pytest.mark.parametrize(
    ("before", "after", "ahead"),
    [
        (state("AFTER:5"), state("AFTER:5"), []),
        (state("AFTER:5"), state("AFTER:4"), []),
        (state("AFTER:5"), state("AFTER:6"), ["a"]),
        (state("AFTER:5", 3), state("AFTER:5"), ["a"]),
        (state("AFTER:5"), state("AFTER:9", 3), []),
        (state("TRIM_HORIZON"), state("AFTER:5"), ["a"]),
        (state("AFTER:5"), state("SHARD_END"), ["a"]),
        (state("2026-01-31T12:00:00Z"), state("AFTER:5"), []),
        (None, state("AFTER:5"), []),
    ],
)
def test_a_shard_that_is_further_in_the_export_goes_forward(
    before: ShardState | None, after: ShardState, ahead: list[str]
) -> None:
    """By its first record that is not acked. A time and a number cannot be compared."""
    stored = {} if before is None else {"a": StoredState(before, 0)}
    exported = ExportedApplication(application="etl", exported_ms=0, states=(after,))
    assert moving_forward(exported, stored) == ahead


@pytest.mark.parametrize("where", ["state", "start"])
@pytest.mark.parametrize("of", ["no stream", "another shard"])
def test_an_export_with_a_number_that_a_shard_refuses_is_refused(
    job: SimulatedJob, where: str, of: str
) -> None:
    """Stored, it would end the job at its first read. A start counts for shards without a state."""
    known = SequenceNumber(job.put(1, key=job.key_of(0))[0])
    bad = Position.after(SequenceNumber(123) if of == "no stream" else known)
    states = [ShardState(shard_id=shard(0), read_position=Position.after(known))]
    if where == "state":
        states.append(ShardState(shard_id=shard(1), read_position=bad))
    start = StartPin(time_ms=0, requested="", position=bad, shards=(shard(0), shard(1)))
    with closing(job.client()) as client:
        exported = ExportedApplication(
            application="etl", exported_ms=0, states=tuple(states), start=start
        )
        with pytest.raises(StoredDataError, match=rf"{bad} is not a position in shard {shard(1)}"):
            check_positions(client, exported)
        gone = ShardState(shard_id=shard(9), read_position=bad)  # not listed any more
        other = ShardState(shard_id=shard(1), read_position=TRIM_HORIZON)
        check_positions(
            client,
            ExportedApplication(
                application="etl", exported_ms=0, states=(states[0], other, gone), start=start
            ),
        )


DAY_S = 86_400.0
MOST_WRITES = 40


def run_job(job: SimulatedJob) -> list[int]:
    coordinator = job.coordinator(starting_position="LATEST")
    try:
        return read_all(job, coordinator, "")[1]
    finally:
        coordinator.close()


def exported_from_before_its_start(job: SimulatedJob) -> tuple[ExportedApplication, list[int]]:
    """An application that started at LATEST, and was moved back over its start: what it reads."""
    numbers = [number for index in (0, 1) for number in job.put(3, key=job.key_of(index))]
    job.clock.advance(60)
    assert run_job(job) == []
    with closing(job.client()) as client, job.owned_store() as store:
        back = RequestedPosition.parse("TRIM_HORIZON")
        found = find_moves(client, store, back, (), clock=job.clock, max_counted=10)
        write_moves(store, found, job.clock.now_ms)
        exported = export_application(store, "app", now_ms=job.clock.now_ms())
    assert exported is not None
    return exported, sorted(numbers)


def import_into(job: SimulatedJob, exported: ExportedApplication) -> None:
    with job.owned_store() as store:
        import_application(store, exported, now_ms=job.clock.now_ms)


def killed_import(job: SimulatedJob, exported: ExportedApplication, writes: int) -> bool:
    """Whether the import was killed; after so many writes it is not."""
    tree = DyingTree(MemoryTree(job.backend), writes, after=False)
    store = StoreTopics(tree, job.store().paths, reset_command="kinesis-spout reset")
    try:
        store.ownership.acquire(this_process(0), timeout_s=1)
        import_application(store, exported, now_ms=job.clock.now_ms)
    except Crash:
        return True
    finally:
        tree.close()
    return False


def is_started(job: SimulatedJob) -> bool:
    try:
        return job.store().identity.read_start() is not None
    except UnfinishedImportError:
        return True


@pytest.mark.parametrize("is_over", [False, True])
def test_a_killed_import_loses_nothing_unseen(*, is_over: bool) -> None:
    """Into an empty application, and over one that has read all: some shards have gone back then,
    and others have not. The exported application was moved back over its start: shards without a
    state of their own would begin at that start, and miss what is before. The import given again
    goes on.
    """
    refused = 0
    for writes in range(MOST_WRITES):
        with simulated(shards=2) as job:
            exported, numbers = exported_from_before_its_start(job)
            if is_over:
                assert sorted(run_job(job)) == numbers
            else:
                with closing(job.store()) as store:
                    store.identity.reset(this_process(0), timeout_s=1)
            was_killed = killed_import(job, exported, writes)
            if is_started(job) or job.store().identity.read() is not None:
                try:
                    assert sorted(run_job(job)) == ([] if is_over and was_killed else numbers)
                except UnfinishedImportError:
                    assert was_killed
                    refused += 1
                    import_into(job, exported)
                    assert sorted(run_job(job)) == numbers
            if not was_killed:
                break
    else:
        raise AssertionError(f"the import has more than {MOST_WRITES} writes")
    assert refused >= 2


@pytest.mark.parametrize("is_noted", [True, False])
def test_what_the_exported_application_knows_to_have_expired_is_a_loss_after_the_import(
    job: SimulatedJob, *, is_noted: bool
) -> None:
    """Records expire while the application is down. Then the retention is raised. The application
    may have noticed that. The import replaces an application that began later.
    """
    job.put(1)
    run_job(job)
    job.put(1)
    job.clock.advance(2 * DAY_S)
    job.fake.increase_stream_retention_period(
        requests.ChangeRetention(stream_name=STREAM, retention_period_hours=168)
    )
    if is_noted:
        with pytest.raises(DataLossError):
            run_job(job)
    with closing(job.store()) as store:
        exported = export_application(store, "app", now_ms=0)
        assert exported is not None
        store.identity.reset(this_process(0), timeout_s=1)
    run_job(job)
    import_into(job, exported)
    with pytest.raises(DataLossError, match="was raised to 168 h"):
        run_job(job)


def test_an_application_of_a_stopped_import_is_neither_moved_nor_exported(
    job: SimulatedJob,
) -> None:
    """Its positions are not all there. A reset removes it."""
    exported, _ = exported_from_before_its_start(job)
    job.backend = MemoryBackend()
    assert any(
        killed_import(job, exported, writes) and job.store().identity.read() and is_started(job)
        for writes in range(MOST_WRITES)
    )
    with closing(job.client()) as client, closing(job.store()) as store:
        with pytest.raises(UnfinishedImportError, match="`kinesis-spout checkpoint import`"):
            export_application(store, "app", now_ms=0)
        latest = RequestedPosition.parse("LATEST")
        with pytest.raises(UnfinishedImportError):
            find_moves(client, store, latest, [shard(0)], clock=job.clock, max_counted=10)
        store.identity.reset(this_process(0), timeout_s=1)
        assert store.identity.read_start() is None


@pytest.mark.parametrize("name", ["paused", "a/b", "..", "", "a\x1b[2J", "a" * 201])
def test_an_export_that_cannot_be_stored_is_refused_before_anything_is_written(name: str) -> None:
    """Else the application is one of a stopped import, that no import of the file ends."""
    store = MemoryStateStore(MemoryBackend(), application="etl", stream=STREAM)
    state = ShardState(shard_id=name, read_position=TRIM_HORIZON)
    exported = ExportedApplication(application="etl", exported_ms=0, states=(state,))
    with pytest.raises(StoredDataError, match="the export of application 'etl' cannot be imported"):
        check_states(store, exported)
    whole = ExportedApplication(application="etl", exported_ms=0)
    check_states(store, whole)


def write_topology(job: SimulatedJob) -> list[int]:
    """A topology in the application's own paths, with a shard that was read to its end, and one
    that is not listed any more: what it has not read of the others.
    """
    paths, tree = job.store().paths, MemoryTree(job.backend)
    left = []
    for index in (0, 1):
        numbers = job.put(4, key=job.key_of(index))
        path = paths.shard(shard(index))
        ensure(tree, path)
        checkpoint = numbers[3 if index == 0 else 1]
        tree.commit([Create(f"{path}/state", b'{"checkpoint":"%d"}' % checkpoint)])
        left += [number for number in numbers if number > checkpoint]
    ensure(tree, paths.shard(shard(9)))
    tree.commit([Create(f"{paths.shard(shard(9))}/state", b'{"checkpoint":"5"}')])
    job.fake.split(STREAM, shard(0))
    return sorted(left + job.put(2, key=job.key_of(0)))


def import_in_place(job: SimulatedJob, tree: ZnodeTree) -> list[str]:
    """What `kinesis-spout import --from storm-spout` does where the topology's znodes are: the
    shards whose rest has expired.
    """
    store = StoreTopics(tree, job.store().paths, reset_command="kinesis-spout reset")
    with closing(job.client()) as client, closing(store):
        store.ownership.acquire(this_process(0), timeout_s=1)
        found = find_import(
            client,
            storm_spout.origin_of(store, "/words/orders"),
            client.describe(),
            "app",
            at=None,
            now_ms=job.clock.now_ms(),
            clock=job.clock,
            max_counted=10,
        )
        import_application(store, found.application, now_ms=job.clock.now_ms)
        return list(found.expired)


def test_a_killed_import_in_place_goes_on_from_what_it_has_left() -> None:
    """Some of the topology's states are the application's by then."""
    stopped = 0
    for writes in range(MOST_WRITES):
        with simulated(shards=2) as job:
            left = write_topology(job)
            try:
                expired = import_in_place(
                    job, DyingTree(MemoryTree(job.backend), writes, after=False)
                )
            except Crash:
                stopped += 1
                import_in_place(job, MemoryTree(job.backend))
                assert sorted(run_job(job)) == left
            else:
                assert expired == [shard(9)]
                break
    else:
        raise AssertionError(f"the import has more than {MOST_WRITES} writes")
    assert stopped >= 5
