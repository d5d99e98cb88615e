"""How the checkpoint commands print a shard."""

from __future__ import annotations

from kinesis_spout.cli.checkpoint.printing import state_lines
from tests.support.inspection.looks import after, shard, state

LONG = 49671348173948173948173948173948173948173948173940001234


def test_a_shard_is_one_line_in_a_file_and_fits_eighty_columns_on_a_terminal() -> None:
    """Numbers are whole, to be copied."""
    one = state(1, after(LONG))
    assert state_lines(one) == [
        f"{shard(1)}  active  read AFTER:{LONG}  checkpoint none  0 unresolved"
    ]
    assert state_lines(one, 80) == [
        f"{shard(1)}  active  0 unresolved",
        f"  read        AFTER:{LONG}",
        "  checkpoint  none",
    ]
    assert all(len(line) <= 80 for line in state_lines(one, 80))


def test_a_line_that_fits_stays_one() -> None:
    assert len(state_lines(state(1, after(5)), 80)) == 1
