"""What processes use, over time."""

from __future__ import annotations

import os

from kinesis_spout.drills.world.use import ProcessUse, UseSample, longest_run, use_of_family

ONE = ProcessUse(1, 1, 1)


def test_the_longest_run_is_the_one_that_was_seen_most_often() -> None:
    samples = [
        UseSample(0, {"job-1": ONE}, None, 1, 1),
        UseSample(1, {"job-2": ONE}, None, 1, 1),
        UseSample(2, {"job-2": ONE}, None, 1, 1),
    ]
    assert longest_run(samples) == "job-2"
    assert longest_run([]) == ""


def test_a_familys_use_has_that_of_its_members() -> None:
    use = use_of_family(os.getpid())
    assert use is not None
    assert use.rss > 0
    assert use.threads >= 1
    assert use_of_family(1 << 30) is None
