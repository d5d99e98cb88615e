"""What an import does to the shards of an application."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from kinesis_spout.checkpoints.transfer import export_application, import_application, import_of
from state.codec.exported import ExportedApplication
from state.owner.ownership import this_process
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.state_store import StoredState
from tests.support.simulated.simulated_driver import read_all
from tests.support.simulated.simulated_job import shard

if TYPE_CHECKING:
    from tests.support.simulated.simulated_job import SimulatedJob


def state(position: str, *unresolved: int) -> ShardState:
    records = tuple(
        UnresolvedRecord(
            first=SequenceNumber(number), last=SequenceNumber(number), attempts=1, due_ms=0
        )
        for number in unresolved
    )
    return ShardState(shard_id="a", read_position=Position.parse(position), unresolved=records)


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
    assert import_of(exported, stored).ahead == ahead


def test_an_application_is_after_the_import_what_it_was_when_it_was_exported(
    job: SimulatedJob,
) -> None:
    """Exported when its start was pinned and no shard was listed yet; before and after that it was
    run.
    """
    with closing(job.coordinator()) as coordinator:
        coordinator.pin_start()
    exported = export(job)
    assert exported.shard_list is None
    with closing(job.coordinator()) as coordinator:
        read_all(job, coordinator)
    begun = export(job)
    assert begun.shard_list == (shard(0), shard(1))
    for one in (exported, begun, exported):
        with closing(job.store()) as store:
            store.acquire(this_process(0), timeout_s=1)
            import_application(store, one, now_ms=job.clock.now_ms)
        # It stays bound to the stream, which is the same one.
        assert replace(export(job), stream=None) == replace(one, stream=None)


def export(job: SimulatedJob) -> ExportedApplication:
    with closing(job.store()) as store:
        exported = export_application(store, "app", now_ms=0)
    assert exported is not None
    return exported
