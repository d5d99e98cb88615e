"""What is stored, which shards there are and what the processes use, sampled in a thread; and
whether what they use stays level.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import psutil

from kinesis_spout.drills.history.events import Sample, ShardLife
from kinesis_spout.errors import KinesisError
from kinesis_spout.programs.processes import descendants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.drills.job import Job
    from kinesis_spout.drills.stream import DrillStream
    from kinesis_spout.drills.zookeeper import StoredStates, ZookeeperServer

INTERVAL_S = 0.5
ENOUGH_S = 120.0  # a process that has lived less than this is still warming up
MIB = 1 << 20
_FAMILY = " and its child processes"
_BETWEEN_USES = 4  # samples; to look at all processes of a job costs more
_ZNODES_PER_STATE = 2
# Pools start their threads as they are needed, and keep them: 8 that fetch, 4 that write letters.
_POOLED_THREADS = 6


class ProcessUse(NamedTuple):
    """Of one process: memory in bytes (RSS), threads, and open files with sockets."""

    rss: int
    threads: int
    files: int


class UseSample(NamedTuple):
    """`at_s`: since the begin. `processes`: by run. `znodes`: all of the server, None while it does
    not answer. `states`: how many shards have a stored state.
    """

    at_s: float
    processes: dict[str, ProcessUse]
    znodes: int | None
    states: int


class Samples:
    """Samples between `start` and `stop`. `states`, `use` and `shards` grow meanwhile."""

    def __init__(
        self, stream: DrillStream, stored: StoredStates, zookeeper: ZookeeperServer, job: Job
    ) -> None:
        self._stream = stream
        self._stored = stored
        self._zookeeper = zookeeper
        self._job = job
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._lock = threading.Lock()
        self.states: list[Sample] = []
        self.use: list[UseSample] = []
        self.shards: dict[str, ShardLife] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        self._ending.set()
        self._thread.join()

    def sample_shards(self) -> None:
        """List the shards, and note which are new or closed since."""
        seen = self._stream.shards()
        now_ns = time.monotonic_ns()
        with self._lock:
            for shard_id, parents, is_open, *hash_keys in seen:
                new = ShardLife(shard_id, parents, now_ns, None, *hash_keys)
                life = self.shards.setdefault(shard_id, new)
                if life.closed_ns is None and not is_open:
                    self.shards[shard_id] = life._replace(closed_ns=now_ns)

    def sample_states(self) -> None:
        """Nothing while ZooKeeper does not answer."""
        began_ns = time.monotonic_ns()
        states = self._stored.read()
        if states is not None:
            with self._lock:
                self.states.append(Sample(began_ns, time.monotonic_ns(), states))

    def _run(self) -> None:
        began_s = time.monotonic()
        for turn in count():
            if self._ending.wait(INTERVAL_S):
                return
            self.sample_states()
            with suppress(KinesisError):  # the next sample lists them
                self.sample_shards()
            if turn % _BETWEEN_USES == 0:
                at_s = time.monotonic() - began_s
                states = len(self.states[-1].states) if self.states else 0
                uses = _uses(self._job.pids)
                self.use.append(UseSample(at_s, uses, self._zookeeper.znodes(), states))


# use ----------------------------------------------------------------------------------------------
def _uses(pids: Mapping[str, int]) -> dict[str, ProcessUse]:
    """Of each run's process; and, of one that has others below it, of all of these together. Runs
    whose process is gone are left out.
    """
    found = {}
    for run, pid in pids.items():
        with suppress(psutil.Error):
            found[run] = own = _use_of(psutil.Process(pid))
            others = []
            for one in descendants(pid):
                with suppress(psutil.Error):
                    others.append(_use_of(one))
            if others:
                found[f"{run}{_FAMILY}"] = ProcessUse(*map(sum, zip(own, *others, strict=True)))
    return found


def _use_of(process: psutil.Process) -> ProcessUse:
    with process.oneshot():
        return ProcessUse(process.memory_info().rss, process.num_threads(), process.num_fds())


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

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.first:.0f} in the first quarter, {self.before:.0f} in the second, "
            f"{self.after:.0f} in the last"
        )

    @property
    def is_level(self) -> bool:
        return self.after <= self.before + max(self.slack, self.before / 10)


def longest_run(samples: Sequence[UseSample]) -> str:
    """The run that was seen most often; empty if none was."""
    seen = Counter(run for sample in samples for run in sample.processes)
    return seen.most_common(1)[0][0] if seen else ""


def level_notes(samples: Sequence[UseSample], run: str) -> list[str]:
    """Sentences about one process, about it with all below it, and about the znodes."""
    found = levels(samples, run)
    if not found:
        return [f"no process lived for {ENOUGH_S:.0f} s, so its use of memory cannot be judged"]
    family = f"{run}{_FAMILY}"
    below = _process_levels(samples, family)
    return [*(f"{run}: {one}" for one in found), *(f"{family}: {one}" for one in below)]


def levels(samples: Sequence[UseSample], run: str) -> list[Level]:
    """Of one process that lived through all of the soak, and of the znodes. Empty if the samples
    are of too short a time to tell.

    A shard's state has two znodes and is kept for the retention of its records, a day at least. So
    the znodes of states are not counted here: their number is that of the reshards.
    """
    of_process = _process_levels(samples, run)
    znodes = [
        (sample.at_s, sample.znodes - _ZNODES_PER_STATE * sample.states)
        for sample in samples
        if sample.znodes is not None
    ]
    return [*of_process, _level("znodes without shard states", znodes, 4)] if of_process else []


def _process_levels(samples: Sequence[UseSample], run: str) -> list[Level]:
    of_run = [(sample.at_s, sample.processes[run]) for sample in samples if run in sample.processes]
    if not of_run or of_run[-1][0] - of_run[0][0] < ENOUGH_S:
        return []
    return [
        _level("memory in MiB", [(at_s, use.rss / MIB) for at_s, use in of_run], 4),
        _level("threads", [(at_s, use.threads) for at_s, use in of_run], _POOLED_THREADS),
        _level("open files", [(at_s, use.files) for at_s, use in of_run], 2),
    ]


def _level(name: str, of: Sequence[tuple[float, float]], slack: float) -> Level:
    first_s, last_s = of[0][0], of[-1][0]
    quarters: list[list[float]] = [[], [], [], []]
    for at_s, value in of:
        quarters[min(int((at_s - first_s) * 4 / (last_s - first_s)), 3)].append(value)
    first, second, _, last = map(median, quarters)
    return Level(name, first, second, last, slack)
