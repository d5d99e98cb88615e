"""Plays random histories: `python -m tests.simulation --histories 1000 --seed 1` (`make simulate
N=1000 SEED=1`).

History number n has the seed SEED + n - 1, so `--histories 1 --seed <its seed>` replays it. The
exit code is 1 if a promise is broken. `--spout` plays histories of standalone spouts.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from random import SystemRandom

from tests.simulation.history import BrokenPromiseError, play
from tests.simulation.spout_history import play_spout

CHUNK = 10  # histories that a process plays before it tells of them
PROGRESS_S = 10.0


def begin() -> None:
    """What is imported by now stays. A history is one large cycle that lives until its end, so
    looking for garbage while it is played finds little.
    """
    gc.freeze()
    gc.disable()


def play_one(seed: int, *, spout: bool) -> Counter[str] | str:
    """The counts of its events, or the promise that it broke."""
    if seed % CHUNK == 0:
        gc.collect()
    try:
        return play_spout(seed) if spout else play(seed)
    except BrokenPromiseError as error:
        return str(error)


def play_all(given: argparse.Namespace, first: int) -> tuple[Counter[str], int, list[str]]:
    """The counts of all events, how many were played, and the broken promises. Tells its progress,
    and stops early when so many promises are broken.
    """
    counts: Counter[str] = Counter()
    broken: list[str] = []
    begun_s = told_s = time.monotonic()
    seeds = range(first, first + given.histories)
    with ProcessPoolExecutor(min(given.jobs, given.histories), initializer=begin) as pool:
        answers = pool.map(partial(play_one, spout=given.spout), seeds, chunksize=CHUNK)
        for played, (seed, answer) in enumerate(zip(seeds, answers, strict=True), start=1):
            if isinstance(answer, str):
                broken.append(answer)
                print(f"seed {seed} is broken", file=sys.stderr)
            else:
                counts.update(answer)
            if time.monotonic() - told_s >= PROGRESS_S:
                told_s = time.monotonic()
                rate = f"{played / (told_s - begun_s):.1f}/s"
                told = f"{played} of {given.histories} histories, {rate}, {len(broken)} broken"
                print(told, file=sys.stderr)
            if len(broken) >= given.most_broken:
                pool.shutdown(wait=True, cancel_futures=True)
                break
    return counts, played, broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, help="of the first history; drawn and printed without")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--most-broken", type=int, default=5, help="stop when this many are broken")
    parser.add_argument("--spout", action="store_true", help="histories of standalone spouts")
    given = parser.parse_args()
    first = SystemRandom().getrandbits(32) if given.seed is None else given.seed
    print(f"{given.histories} histories from seed {first}")
    begun_s = time.monotonic()
    counts, played, broken = play_all(given, first)
    took_s = time.monotonic() - begun_s
    for what, times in sorted(counts.items()):
        print(f"{times:10}  {what}")
    rate = f"{played / took_s:.1f} histories/s"
    print(f"{played} histories in {took_s:.1f} s, {rate}, {len(broken)} broken")
    for told in broken:
        print(f"\n{told}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
