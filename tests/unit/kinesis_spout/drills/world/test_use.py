"""What processes use, over time."""

from __future__ import annotations

import os
import subprocess
import sys

from kinesis_spout.drills.world.use import (
    ProcessUse,
    UseSample,
    family,
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
