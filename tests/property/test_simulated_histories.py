"""Random histories in simulated time: no loss, no stuck shard, no checkpoint that moves back or
passes an unresolved record, no child before its parents.

`make simulate N=10000` plays many more; `make simulate N=1 SEED=<seed>` replays one.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.simulation.history import play
from tests.simulation.run_mutants import misfits

BUNDLES = 4


@pytest.mark.parametrize("number", range(BUNDLES))
def test_no_simulated_history_breaks_a_promise(number: int) -> None:
    """The seeds are the same in each run, so a failure comes from a change. `make simulate` plays
    others.
    """
    for seed in range(number, settings().max_examples // 2, BUNDLES):
        play(seed)


def test_a_seed_tells_the_whole_history() -> None:
    assert play(4711) == play(4711)


def test_no_mutant_has_rotted() -> None:
    """The text that each mutant replaces occurs exactly once in its file. `make mutants` shows that
    they are caught.
    """
    assert misfits() == []
