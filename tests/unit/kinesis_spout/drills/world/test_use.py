"""What processes use, over time."""

from __future__ import annotations

import os
import subprocess
import sys

from kinesis_spout.drills.world.use import (
    MIB,
    ProcessUse,
    UseSample,
    family,
    level_notes,
    longest_run,
    uses_of,
)

ONE = ProcessUse(1, 1, 1)


def test_the_longest_run_is_the_one_that_was_seen_most_often() -> None:
    samples = [
        UseSample(0, {"job-1": ONE}, None, 1, 1),
        UseSample(1, {"job-2": ONE}, None, 1, 1),
        UseSample(2, {"job-2": ONE}, None, 1, 1),
    ]
    assert longest_run(samples) == "job-2"
    assert longest_run([]) == ""


def test_what_a_process_used_is_said_by_quarters_alone_and_with_all_below_it() -> None:
    """Its memory warms up, and it lives for half of the time. Below it, files are opened."""
    samples = [
        UseSample(
            float(at_s),
            {"job-1": ProcessUse(min(60 + at_s, 160) * MIB, 10, 20)}
            | {family("job-1"): ProcessUse(300 * MIB, 50, 100 + at_s)}
            if at_s < 400
            else {"job-2": ONE},
            40,
            4,
            10,
        )
        for at_s in range(600)
    ]
    run, below = "job-1", family("job-1")
    assert level_notes(samples, longest_run(samples)) == [
        f"{run}: memory 110 MiB in the first quarter, 160 in the second, 160 in the last",
        f"{run}: threads 10 in the first quarter, 10 in the second, 10 in the last",
        f"{run}: open files 20 in the first quarter, 20 in the second, 20 in the last",
        (
            f"{run}: znodes without shard states 20 in the first quarter, 20 in the second, "
            "20 in the last"
        ),
        f"{below}: memory 300 MiB in the first quarter, 300 in the second, 300 in the last",
        f"{below}: threads 50 in the first quarter, 50 in the second, 50 in the last",
        f"{below}: open files 150 in the first quarter, 250 in the second, 450 in the last",
    ]
    assert len(level_notes(samples[:100], "job-1")) == 1


def test_a_process_with_others_below_it_has_a_figure_for_all_of_them() -> None:
    """One that is gone has none."""
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as below:
        assert below.stdout is not None
        below.stdout.readline()
        uses = uses_of({"parent": os.getpid(), "child": below.pid, "gone": 1 << 30})
        below.communicate()
    assert set(uses) == {"parent", family("parent"), "child"}
    assert uses[family("parent")].threads >= uses["parent"].threads + uses["child"].threads
    assert uses[family("parent")].rss > uses["parent"].rss
