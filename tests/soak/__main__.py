"""Runs a soak of the standalone spout: `python -m tests.soak --minutes 10 --seed 1` (`make soak
MINUTES=10 SEED=1`).

It prints a table of figures. The exit code is 1 when a promise is broken, or when memory, threads,
open files or znodes grow.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from kinesis_spout.drills.history.checks import broken_promises
from kinesis_spout.drills.soak import Pace, Soak
from kinesis_spout.drills.soak_report import outcome_levels, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long it disturbs")
    parser.add_argument("--seed", type=int, help="of the events; by default drawn, and printed")
    parser.add_argument("--keep", type=Path, help="a new directory for all files, which stays")
    given = parser.parse_args()
    seed = SystemRandom().getrandbits(32) if given.seed is None else given.seed
    print(f"a soak of {given.minutes:g} minutes with seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=given.keep is None)
        soak = Soak(directory, seed=seed, pace=Pace(), tell=print)
        outcome = soak.run(given.minutes * 60)
    broken = outcome.troubles + broken_promises(outcome.history)
    print(table(outcome, broken))
    grown = [level for level in outcome_levels(outcome) if not level.is_level]
    return 1 if broken or grown else 0


if __name__ == "__main__":
    sys.exit(main())
