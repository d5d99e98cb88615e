"""What an import does to the shards of an application."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.checkpoints.transfer import (
    check_positions,
    import_of,
)
from state.codec.exported import ExportedApplication
from state.errors import StoredDataError
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.identity import StartPin
from state.store.shard_states import StoredState
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
