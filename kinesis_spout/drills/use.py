"""What the processes of a drill use, and whether that stays level over a soak."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import psutil

from kinesis_spout.processes import descendants

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Uses: TypeAlias = "Mapping[str, Sequence[tuple[float, Counter[str]]]]"
"""What a subject used, in the order of the times: seconds, and how much of each measure. A subject
is a run or ZooKeeper.
"""

ZOOKEEPER = "ZooKeeper"
ENOUGH_S = 120.0  # a process that has lived less than this is still warming up
_MIB = 1 << 20
_ZNODES_PER_STATE = 2
_ZNODES = "znodes without shard states"
# By how much the last quarter may exceed the second, where that is more than a tenth of it. Pools
# start their threads as they are needed, and keep them: 8 that fetch, 4 that write letters.
_SLACK = {"memory in MiB": 4, "threads": 6, "open files": 2, _ZNODES: 4}


def process_uses(pids: Mapping[str, int]) -> Iterator[tuple[str, Counter[str]]]:
    """Of each run's process, with all below it. Runs whose process is gone are left out."""
    for run, pid in pids.items():
        with suppress(psutil.Error):
            use = _use(psutil.Process(pid))
            for one in descendants(pid):
                with suppress(psutil.Error):
                    use += _use(one)
            yield run, use


def znode_use(znodes: int, states: int) -> Counter[str]:
    """A shard's state has two znodes and is kept for the retention of its records, a day at least.
    So the znodes of states are not counted: their number is that of the reshards.
    """
    return Counter({_ZNODES: znodes - _ZNODES_PER_STATE * states})


def _use(process: psutil.Process) -> Counter[str]:
    """Open files include sockets."""
    with process.oneshot():
        figures = process.memory_info().rss // _MIB, process.num_threads(), process.num_fds()
        return Counter(dict(zip(_SLACK, figures, strict=False)))


@dataclass(frozen=True, slots=True)
class Level:
    """The medians of the first, the second and the last quarter of a run. In the first one it may
    still warm up.
    """

    subject: str
    measure: str
    first: float
    before: float
    after: float

    def __str__(self) -> str:
        return (
            f"{self.subject}: {self.measure}: {self.first:.0f} in the first quarter, "
            f"{self.before:.0f} in the second, {self.after:.0f} in the last"
        )

    @property
    def is_level(self) -> bool:
        return self.after <= self.before + max(_SLACK[self.measure], self.before / 10)


def levels(uses: Uses, *subjects: str) -> Iterator[Level]:
    """Of each measure of the subjects. Those are left out that lived for too short a time to
    tell.
    """
    for subject in subjects:
        samples = uses.get(subject, ())
        if not samples or (lived_s := samples[-1][0] - samples[0][0]) < ENOUGH_S:
            continue
        quarters: list[list[Counter[str]]] = [[], [], [], []]
        for at_s, use in samples:
            quarters[min(int((at_s - samples[0][0]) * 4 / lived_s), 3)].append(use)
        for measure in samples[0][1]:
            first, second, _, last = (median(use[measure] for use in each) for each in quarters)
            yield Level(subject, measure, first, second, last)


def level_notes(uses: Uses, run: str) -> list[str]:
    """Sentences about one run, and about ZooKeeper."""
    if not any(levels(uses, run)):
        return [f"no process lived for {ENOUGH_S:.0f} s, so memory use cannot be judged"]
    return [str(one) for one in levels(uses, run, ZOOKEEPER)]
