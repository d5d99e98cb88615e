"""What an import does to the shards of an application."""

from __future__ import annotations

import pytest

from kinesis_spout.checkpoints.transfer import import_of
from state.codec.exported import ExportedApplication
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.state_store import StoredState


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
