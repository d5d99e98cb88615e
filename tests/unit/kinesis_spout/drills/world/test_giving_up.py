"""A drill that gives its job up says how far that had come, and names the log."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.drills.history.events import Step, Told
from kinesis_spout.drills.teller import Teller
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.setting import Setting
from kinesis_spout.drills.world.told_files import ToldFiles
from kinesis_spout.drills.world.world import World

if TYPE_CHECKING:
    from pathlib import Path

RUN = "job-1"


class SilentJob:
    """A job with one run, which tells what the test writes into its file."""

    def __init__(self, directory: Path) -> None:
        self.tasks = {RUN: 0}
        self._directory = directory

    def path(self, run: str) -> Path:
        return self._directory / f"{run}.told"

    def log(self, run: str) -> Path:
        return self._directory / f"{run}.log"


def given_up(directory: Path, *told: Told, states: object = ()) -> str:
    """What a world says that has waited without success."""
    world = World(directory, Setting(), print)
    job: Any = SilentJob(directory)
    samples: Any = SimpleNamespace(states=states)
    world.job, world.samples, world.files = job, samples, ToldFiles(job)
    Teller(str(job.path(RUN))).tell(*told)
    with pytest.raises(DrillError) as raised:
        world.wait_until(lambda: False, "its first ack", limit_s=-1)
    return str(raised.value)


def line(step: Step, number: int, seconds_ago: float, reason: str = "") -> Told:
    at_ns = time.monotonic_ns() - round(seconds_ago * 1e9)
    return Told(at_ns, step, "shard", "", number, "key", number, 1, reason)


def test_a_function_that_does_not_return_is_told_from_one_that_fails_its_records(
    tmp_path: Path,
) -> None:
    hangs = given_up(tmp_path, line(Step.ACK, 1, 200), line(Step.GOT, 2, 120))
    assert (
        "the function was called and has not returned for 120 s; acked or dead-lettered so far: 1"
        in hangs
    )
    fails = given_up(tmp_path, line(Step.FAIL, 2, 30, "KeyError: total"))
    assert "the last outcome of a record was 30 s ago" in fails
    assert fails.endswith("the last record that failed says 'KeyError: total'; see job-1.log")
