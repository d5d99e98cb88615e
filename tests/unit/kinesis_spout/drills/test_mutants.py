"""A drill is worth something if it fails without the protection that it tests."""

from __future__ import annotations

import pytest

from kinesis_spout.drills.scenarios import DRILLS
from tests.simulation import run_mutants
from tests.simulation.run_mutants import DRILL, Edit, Mutant, misfits

MUTANTS = [one for one in run_mutants.MUTANTS if one.catcher.startswith(DRILL)]
FILE = "kinesis_spout/drills/drill.py"
FITTING = Edit(FILE, "WARM = 100", "WARM = 1")


def test_each_drill_has_a_mutant_that_it_has_to_catch() -> None:
    """A new drill without one fails here."""
    caught = {one.catcher.split()[-1] for one in MUTANTS}
    assert caught == set(DRILLS)


@pytest.mark.parametrize(
    "wrong",
    [
        Edit(FILE, "there is no such text", ""),
        Edit(FILE, "DrillError", ""),
        FITTING._replace(new="WARM = ("),
    ],
)
def test_each_edit_of_a_mutant_has_to_fit(wrong: Edit) -> None:
    """Its text must occur exactly once, and what takes its place must compile."""
    fits = Mutant("fits", *FITTING, "a test", also=(FITTING,))
    rotten = Mutant("rotten", *wrong, "a test")
    assert misfits((fits, rotten)) == ["rotten"]


def test_the_catcher_of_a_mutant_has_to_be_there() -> None:
    gone = Mutant("gone", *FITTING, "tests/unit/test_gone.py -k one")
    assert misfits((Mutant("here", *FITTING, "tests/unit"), gone)) == ["gone"]
