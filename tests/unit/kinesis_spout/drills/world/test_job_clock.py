"""The clock that a drill sets is that of the product in another process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from kinesis_spout.drills.world.job_clock import JobClock, add_variables

if TYPE_CHECKING:
    from pathlib import Path

_HOUR_MS = 3_600_000
_PROGRAM = "from kinesis_spout.clock import SystemClock; print(SystemClock().now_ms())"


def clock_of_a_process(env: dict[str, str]) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    return int(ran.stdout)


def test_a_process_of_the_job_has_the_clock_that_was_set_and_another_one_the_right_one(
    tmp_path: Path,
) -> None:
    clock = JobClock(tmp_path / "clock")
    env = add_variables(dict(os.environ), clock.variables())
    clock.set(6 * _HOUR_MS)
    now_ms = time.time_ns() // 1_000_000
    assert round((clock_of_a_process(env) - now_ms) / _HOUR_MS) == 6
    assert round((clock_of_a_process(dict(os.environ)) - now_ms) / _HOUR_MS) == 0
