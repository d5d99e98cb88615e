from __future__ import annotations

import pytest

from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState


@pytest.mark.parametrize(
    ("checkpoint", "lifecycle", "text"),
    [
        (None, Lifecycle.ACTIVE, None),
        (SequenceNumber(5), Lifecycle.ACTIVE, "5"),
        (SequenceNumber(5), Lifecycle.DRAINED, "5"),
        (SequenceNumber(5), Lifecycle.FINISHED, "SHARD_END"),
        (None, Lifecycle.FINISHED, "SHARD_END"),
    ],
)
def test_the_checkpoint_is_shown_as_shard_end_only_when_finished(
    checkpoint: SequenceNumber | None, lifecycle: Lifecycle, text: str | None
) -> None:
    """A drained shard has unresolved records: its end is not acked."""
    state = ShardState(
        shard_id="s", checkpoint=checkpoint, read_position=SHARD_END, lifecycle=lifecycle
    )
    assert state.checkpoint_text == text
    assert state.finished is (lifecycle is Lifecycle.FINISHED)


def test_the_end_was_read_when_the_read_position_says_so() -> None:
    """Unresolved records do not hold back the children."""
    assert ShardState(
        shard_id="s", read_position=SHARD_END, lifecycle=Lifecycle.DRAINED
    ).end_was_read
    for position in (TRIM_HORIZON, Position.after(SequenceNumber(5))):
        assert not ShardState(shard_id="s", read_position=position).end_was_read
