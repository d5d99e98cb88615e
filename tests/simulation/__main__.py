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
from concurrent.futures import ProcessPoolExecutor, as_completed
from random import SystemRandom

from tests.simulation.history import BrokenPromiseError, play
from tests.simulation.spout_history import play_spout

CHUNK = 20
PROGRESS_S = 10.0
COLLECTED_AFTER = 10  # histories


def play_some(
    seeds: range, max_broken: int, *, spout: bool
) -> tuple[int, Counter[str], list[tuple[int, str]]]:
    """Play histories until `max_broken` are broken.

    Returns how many were played, the counts of their events, and the broken promises by seed.
    """
    # What is imported by now stays. A history is one large cycle that lives until its end, so
    # looking for garbage while it is played finds little.
    gc.freeze()
    gc.disable()
    counts: Counter[str] = Counter()
    broken: list[tuple[int, str]] = []
    played = 0
    for seed in seeds:
        if played % COLLECTED_AFTER == 0:
            gc.collect()
        played += 1
        try:
            counts.update(play_spout(seed) if spout else play(seed))
        except BrokenPromiseError as error:
            broken.append((seed, str(error)))
            if len(broken) >= max_broken:
                break
    return played, counts, broken


def play_all(
    first: int, histories: int, jobs: int, max_broken: int, *, spout: bool
) -> tuple[Counter[str], int, list[str], float]:
    """Play them in several processes and report the progress; stops early when `max_broken` are
    broken.

    Returns the counts of all events, how many were played, the broken promises by seed, and the
    seconds that it took.
    """
    counts: Counter[str] = Counter()
    broken: list[tuple[int, str]] = []
    played, begun_s = 0, time.monotonic()
    told_s = begun_s
    chunks = [
        range(at, min(at + CHUNK, first + histories))
        for at in range(first, first + histories, CHUNK)
    ]
    with ProcessPoolExecutor(min(jobs, len(chunks))) as pool:
        for done in as_completed(
            [pool.submit(play_some, chunk, max_broken, spout=spout) for chunk in chunks]
        ):
            number, counted, wrong = done.result()
            played += number
            counts.update(counted)
            broken += wrong
            for seed, _ in wrong:
                print(f"seed {seed} is broken", file=sys.stderr)
            if time.monotonic() - told_s >= PROGRESS_S:
                told_s = time.monotonic()
                print(
                    f"{played} of {histories} histories, {played / (told_s - begun_s):.1f}/s, "
                    f"{len(broken)} broken",
                    file=sys.stderr,
                )
            if len(broken) >= max_broken:
                pool.shutdown(wait=True, cancel_futures=True)
                break
    return counts, played, [told for _, told in sorted(broken)], time.monotonic() - begun_s


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, help="how many")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="seed of the first history; by default drawn, and printed",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--most-broken", type=int, default=5, help="stop when this many are broken")
    parser.add_argument("--spout", action="store_true", help="histories of standalone spouts")
    given = parser.parse_args()
    first = SystemRandom().getrandbits(32) if given.seed is None else given.seed
    print(f"{given.histories} histories from seed {first}")
    counts, played, broken, took_s = play_all(
        first, given.histories, given.jobs, given.most_broken, spout=given.spout
    )
    for what, times in sorted(counts.items()):
        print(f"{times:10}  {what}")
    print(
        f"{played} histories in {took_s:.1f} s, {played / took_s:.1f} histories/s, {len(broken)} "
        "broken"
    )
    for told in broken:
        print(f"\n{told}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
