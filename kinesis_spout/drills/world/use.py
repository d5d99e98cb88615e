"""What a soak's processes and its ZooKeeper use, sampled; and whether it stays level."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import psutil

from kinesis_spout.programs.processes import descendants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIB = 1 << 20
ZNODES_PER_STATE = 2
# Pools start their threads as they are needed, and keep them: 8 that fetch, 4 that write letters.
POOLED_THREADS = 6
ENOUGH_S = 120.0  # a process that has lived less than this is still warming up


class ProcessUse(NamedTuple):
    """Of one process: memory in bytes (RSS), threads, and open files with sockets."""

    rss: int
    threads: int
    files: int


class UseSample(NamedTuple):
    """`at_s`: since the begin. `processes`: by run. `znodes`: all of the server, None while it does
    not answer. `shards`: how many the service lists; `states`: how many have a stored state.
    """

    at_s: float
    processes: dict[str, ProcessUse]
    znodes: int | None
    shards: int
    states: int


@dataclass(frozen=True, slots=True)
class Level:
    """The medians of the first, the second and the last quarter of a run, and whether the last one
    is within `slack`, or a tenth, of the second. In the first one it may still warm up.
    """

    name: str
    first: float
    before: float
    after: float
    slack: float
    unit: str = ""

    def __str__(self) -> str:
        first = f"{self.first:.0f} {self.unit}".rstrip()
        return (
            f"{self.name} {first} in the first quarter, {self.before:.0f} in the second, "
            f"{self.after:.0f} in the last"
        )

    @property
    def is_level(self) -> bool:
        return self.after <= self.before + max(self.slack, self.before / 10)


def use_of(pid: int) -> ProcessUse | None:
    """None if there is no such process any more."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return ProcessUse(process.memory_info().rss, process.num_threads(), process.num_fds())
    except psutil.Error:
        return None


def uses_of(pids: Mapping[str, int]) -> dict[str, ProcessUse]:
    """Of each run's process; and, of one that has others below it, of all of these together. Runs
    whose process is gone are left out.
    """
    found = {}
    for run, pid in pids.items():
        if (own := use_of(pid)) is None:
            continue
        found[run] = own
        if others := [use for one in descendants(pid) if (use := use_of(one.pid)) is not None]:
            found[family(run)] = ProcessUse(*map(sum, zip(own, *others, strict=True)))
    return found


def family(run: str) -> str:
    """What `uses_of` calls a run's process with all below it."""
    return f"{run} with all below it"


def longest_run(samples: Sequence[UseSample]) -> str:
    """The run that was seen most often; empty if none was."""
    seen = Counter(run for sample in samples for run in sample.processes)
    return seen.most_common(1)[0][0] if seen else ""


def level_notes(samples: Sequence[UseSample], run: str) -> list[str]:
    """Sentences about one process, about it with all below it, if there is something, and about the
    znodes.
    """
    found = levels(samples, run)
    if not found:
        return [f"no process lived for {ENOUGH_S:.0f} s, so nothing is said of what one uses"]
    below = _process_levels(samples, family(run))
    return [*(f"{run}: {one}" for one in found), *(f"{family(run)}: {one}" for one in below)]


def levels(samples: Sequence[UseSample], run: str) -> list[Level]:
    """Of one process that lived through all of the soak, and of the znodes. Empty if the samples
    are of too short a time to tell.

    A shard's state has two znodes and is kept for the retention of its records, a day at least. So
    the znodes of states are not counted here: their number is that of the reshards.
    """
    of_process = _process_levels(samples, run)
    if not of_process:
        return []
    znodes = [
        (sample.at_s, sample.znodes - ZNODES_PER_STATE * sample.states)
        for sample in samples
        if sample.znodes is not None
    ]
    return [*of_process, _level("znodes without shard states", znodes, 4)]


def _process_levels(samples: Sequence[UseSample], run: str) -> list[Level]:
    of_run = [(sample.at_s, sample.processes[run]) for sample in samples if run in sample.processes]
    if not of_run or of_run[-1][0] - of_run[0][0] < ENOUGH_S:
        return []
    return [
        _level("memory", [(at_s, use.rss / MIB) for at_s, use in of_run], 4, "MiB"),
        _level("threads", [(at_s, use.threads) for at_s, use in of_run], POOLED_THREADS),
        _level("open files", [(at_s, use.files) for at_s, use in of_run], 2),
    ]


def _level(name: str, of: Sequence[tuple[float, float]], slack: float, unit: str = "") -> Level:
    first_s, last_s = of[0][0], of[-1][0]
    quarter_s = (last_s - first_s) / 4
    first, second, _, last = (
        [value for at_s, value in of if begin * quarter_s <= at_s - first_s < end * quarter_s]
        for begin, end in ((0, 1), (1, 2), (2, 3), (3, 5))  # the last sample is at 4 quarters
    )
    return Level(name, median(first), median(second), median(last), slack, unit)
