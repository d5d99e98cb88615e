"""Random histories of standalone spouts in simulated time, crashes, closings and faults among them:
no promise is broken.

What the spout says of its emissions is held against books that are kept of them: attempts, counts,
who may still be told what. `python -m tests.simulation --spout --histories 1000` plays many more;
`--seed <seed> --histories 1` replays one.
"""

from __future__ import annotations

import pytest

from tests.simulation.spout_history import play_spout

BUNDLES, HISTORIES = 4, 15


@pytest.mark.parametrize("number", range(BUNDLES))
def test_no_simulated_history_of_a_spout_breaks_a_promise(number: int) -> None:
    """The same in each run, so that a change is what breaks one."""
    for seed in range(number * HISTORIES, (number + 1) * HISTORIES):
        play_spout(seed)


def test_a_seed_tells_the_whole_history_of_a_spout() -> None:
    """The same one twice: what happened in it is the same."""
    assert play_spout(4711) == play_spout(4711)
