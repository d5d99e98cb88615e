"""Random histories in simulated time: no loss, no stuck shard, no checkpoint back or past an
unresolved record, no child first.

`make simulate N=10000` plays many more; `make simulate N=1 SEED=<seed>` replays one.
"""

from __future__ import annotations

import pytest

from tests.simulation.history import play
from tests.simulation.run_mutants import misfits

BUNDLES, HISTORIES = 4, 20


@pytest.mark.parametrize("number", range(BUNDLES))
def test_no_simulated_history_breaks_a_promise(number: int) -> None:
    """The same in each run, so that a change is what breaks one; `make simulate` looks
    for others.
    """
    for seed in range(number * HISTORIES, (number + 1) * HISTORIES):
        play(seed)


def test_a_seed_tells_the_whole_history() -> None:
    """The same one twice: what happened in it is the same."""
    assert play(4711) == play(4711)


def test_no_mutant_has_rotted() -> None:
    """The text that each one replaces stands in its file exactly once. `make mutants` shows that
    they are caught.
    """
    assert misfits() == []
