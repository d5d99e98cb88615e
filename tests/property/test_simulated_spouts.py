"""Random histories of standalone spouts in simulated time, with crashes, closings and faults: no
promise is broken.

The spout's answers are checked against books of its emissions: attempts, counts, and which
emissions may still have an outcome. `python -m tests.simulation --spout --histories 1000` plays
many more; `--seed <seed> --histories 1` replays one.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.simulation.spout_history import play_spout

BUNDLES = 4


@pytest.mark.parametrize("number", range(BUNDLES))
def test_no_simulated_history_of_a_spout_breaks_a_promise(number: int) -> None:
    """The seeds are the same in each run, so a failure comes from a change."""
    for seed in range(number, settings().max_examples // 2, BUNDLES):
        play_spout(seed)


def test_a_seed_tells_the_whole_history_of_a_spout() -> None:
    assert play_spout(4711) == play_spout(4711)
