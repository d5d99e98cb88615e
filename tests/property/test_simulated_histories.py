"""Random histories in simulated time, of Spark jobs and of standalone spouts: no loss, no stuck
shard, no checkpoint that moves back or passes an unresolved record, no child before its parents.
A spout's answers are checked against books of its emissions.

`make simulate N=10000` plays many more; `make simulate N=1 SEED=<seed>` replays one. With
`ARGS=--spout` they are those of spouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.simulation.history import play
from tests.simulation.run_mutants import misfits
from tests.simulation.spout_history import play_spout

if TYPE_CHECKING:
    from collections.abc import Callable

BUNDLES = 4
both = pytest.mark.parametrize("played", [play, play_spout])


@both
@pytest.mark.parametrize("number", range(BUNDLES))
def test_no_simulated_history_breaks_a_promise(
    played: Callable[[int], object], number: int
) -> None:
    """The seeds are the same in each run, so a failure comes from a change. `make simulate` plays
    others.
    """
    for seed in range(number, settings().max_examples // 2, BUNDLES):
        played(seed)


@both
def test_a_seed_tells_the_whole_history(played: Callable[[int], object]) -> None:
    assert played(4711) == played(4711)


def test_no_mutant_has_rotted() -> None:
    """The text that each mutant replaces occurs exactly once in its file. `make mutants` shows that
    they are caught.
    """
    assert misfits() == []
