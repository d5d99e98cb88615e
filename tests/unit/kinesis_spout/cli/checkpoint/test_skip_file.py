"""The file of `checkpoint skip --to`."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

from kinesis_spout.checkpoints.skip import Skip
from kinesis_spout.cli.checkpoint.skip import save_records
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.shard_states import StoredState
from tests.support.simulated.simulated_job import shard

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.simulated.simulated_job import SimulatedJob


def test_what_has_expired_is_counted_and_the_others_are_saved(
    one: SimulatedJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a range with the number of those that are missing."""
    put = [SequenceNumber(number) for number in one.put(4)]
    one.clock.advance(20 * 3_600)
    put += [SequenceNumber(number) for number in one.put(3, data=b"later")]
    one.clock.advance(5 * 3_600)
    records = (
        UnresolvedRecord(first=put[0], last=put[0], attempts=1, due_ms=0),
        UnresolvedRecord(first=put[1], last=put[4], count=4, attempts=1, due_ms=0),
        UnresolvedRecord(first=put[5], last=put[6], count=2, attempts=1, due_ms=0),
    )
    state = ShardState(shard_id=shard(0), read_position=Position.after(put[6]), unresolved=records)
    path = tmp_path / "letters.jsonl"
    with closing(one.client()) as client:
        save_records(client, Skip(StoredState(state, 0), state, records), path)
    missing = "  not saved, since not in the stream any more:"
    together = f"records from {put[1]} to {put[4]}, which are unresolved together"
    assert capsys.readouterr().out.splitlines() == [
        f"{missing} {put[0]}",
        f"{missing} 3 of the 4 {together}",
        f"saved 3 records to {path}",
    ]
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["sequence"] for one in letters] == [str(number) for number in put[4:]]
