"""A soak: spouts that share a stream are killed at random, beside one that is not, while Kinesis
answers with faults, shards are split and merged, and ZooKeeper comes and goes.

All of it is real: processes, HTTP, a ZooKeeper server, and the machine's clock. The seed draws the
events, and cannot repeat their times.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.drills.drill import Drilled
from kinesis_spout.drills.history.events import Fault, History, Put, Sample
from kinesis_spout.drills.spark_arguments import RETRY_LIMIT
from kinesis_spout.drills.spout_program import STREAM
from kinesis_spout.drills.world.disturbances import disturb, empty_pages, reshard, struck
from kinesis_spout.drills.world.spout_processes import SpoutProcesses
from kinesis_spout.drills.world.told_files import ToldFiles
from kinesis_spout.drills.world.use import UseSample, levels, use_of
from kinesis_spout.drills.world.zookeeper import StoredStates, ZookeeperServer
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from state.state_store import TaskShare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kinesis_spout.drills.world.setting import Setting
    from state.shard_state import ShardState

TASKS = 3
STEADY = TASKS - 1  # the task that is never killed
KEYS = 24
PADDING = b"." * 250
FIRST_SHARDS = 4
_PUT_INTERVAL_S = 0.05
_SAMPLE_INTERVAL_S = 1.0
_CLOSED_IN_ORDER = 0.2
_DRAIN_LIMIT_S = 240.0
_LAPSE_LIMIT_S = 60.0
_OLD_S = 10.0  # closed for so long, a finished shard is forgotten by the service


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much happens. Times are the least and the most seconds between two events."""

    records_per_s: float = 200.0
    fault_s: tuple[float, float] = (0.05, 1.2)
    empty_s: tuple[float, float] = (2.0, 8.0)
    reshard_s: tuple[float, float] = (4.0, 14.0)
    kill_s: tuple[float, float] = (6.0, 16.0)
    zookeeper_s: tuple[float, float] = (25.0, 60.0)
    zookeeper_away_s: tuple[float, float] = (0.0, 12.0)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a soak was, for the checker and for the table."""

    history: History
    use: list[UseSample]
    steady_run: str
    counts: Counter[str]
    away: list[tuple[int, int]]
    closing_s: list[float]
    drained_s: float
    troubles: list[str]

    def was_away(self, begin_ns: int, end_ns: int) -> bool:
        """Whether ZooKeeper was away at some time between these two."""
        return any(began < end_ns and ended > begin_ns for began, ended in self.away)


@dataclass(slots=True)
class _Seen:
    puts: list[Put] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    use: list[UseSample] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)
    closing_s: list[float] = field(default_factory=list)


class Soak:
    """Runs once. `tell` gets a sentence now and then."""

    def __init__(
        self, directory: Path, *, seed: int, pace: Pace, tell: Callable[[str], object]
    ) -> None:
        self._directory = directory
        self._seed = seed
        self._pace = pace
        self._tell = tell
        self._seen = _Seen()
        self._ending = threading.Event()
        self._fake = FakeKinesis()
        self._server = ZookeeperServer(directory / "zookeeper")
        self._began_s = 0.0

    def run(self, seconds: float) -> Outcome:
        """Disturb for so many seconds, then let it drain and close. Blocks."""
        self._fake.create(STREAM, shards=FIRST_SHARDS)
        with ExitStack() as stack:
            http = stack.enter_context(FakeKinesisServer(self._fake))
            stack.callback(self._server.end)
            self._server.start()
            self._states = StoredStates(self._server.connect_string)
            stack.callback(self._states.close)
            self._spouts = SpoutProcesses(
                self._directory,
                endpoint=http.endpoint_url,
                zookeeper=self._server.connect_string,
                tasks=TASKS,
                seed=self._seed,
            )
            stack.callback(self._spouts.end)
            self._began_s = time.monotonic()
            for task in range(TASKS):
                self._spouts.start(task)
            steady_run = self._spouts.running[STEADY].run
            self._disturb(seconds)
            files = ToldFiles(self._spouts)
            drained_s = self._drain(files)
            if not self._seen.troubles:
                self._seen.closing_s += self._spouts.close(range(TASKS))
            self._sample_states()
            files.read()
        self._seen.counts.update({f"fault: {name}": n for name, n in struck(self._fake).items()})
        return Outcome(
            history=History(
                puts=self._seen.puts,
                told=files.told(),
                faults=sorted(self._seen.faults, key=lambda fault: fault.began_ns),
                samples=self._seen.samples,
                tasks=self._spouts.tasks,
                retry_limit=RETRY_LIMIT,
            ),
            use=self._seen.use,
            steady_run=steady_run,
            counts=self._seen.counts,
            away=self._server.away,
            closing_s=self._seen.closing_s,
            drained_s=drained_s,
            troubles=self._seen.troubles,
        )

    # phases ---------------------------------------------------------------------------------------
    def _disturb(self, seconds: float) -> None:
        pace = self._pace
        each_s = (_PUT_INTERVAL_S, _PUT_INTERVAL_S)
        sampled_s = (_SAMPLE_INTERVAL_S, _SAMPLE_INTERVAL_S)
        loops: list[tuple[tuple[float, float], Callable[[Random], object]]] = [
            (each_s, self._producer()),
            (sampled_s, self._sample),
            (pace.fault_s, lambda random: disturb(self._fake, random, self._ending.wait)),
            (pace.empty_s, lambda random: empty_pages(self._fake, random, STREAM)),
            (pace.reshard_s, self._reshard),
            (pace.kill_s, self._kill),
            (pace.zookeeper_s, self._disturb_zookeeper),
        ]
        with ThreadPoolExecutor(len(loops)) as pool:
            running = [
                pool.submit(self._loop, self._random(index), between_s, act)
                for index, (between_s, act) in enumerate(loops)
            ]
            self._ending.wait(seconds)
            self._ending.set()
        for loop in running:
            loop.result()

    def _random(self, index: int) -> Random:
        return Random(f"{self._seed} {index}")  # noqa: S311  # events to draw, not a secret

    def _loop(
        self, random: Random, between_s: tuple[float, float], act: Callable[[Random], object]
    ) -> None:
        try:
            while not self._ending.wait(random.uniform(*between_s)):
                act(random)
        finally:
            self._ending.set()  # one that raised ends all

    def _drain(self, files: ToldFiles) -> float:
        """Wait, without faults, until all is processed and stored. Returns the seconds it took."""
        self._fake.faults.clear()
        self._tell(f"{len(self._seen.puts)} records were put; draining")
        began_s = time.monotonic()
        tick = threading.Event()
        while time.monotonic() < began_s + _DRAIN_LIMIT_S and not self._seen.troubles:
            self._sample(Random(0))  # noqa: S311  # draws nothing
            files.read()
            missing = len(self._seen.puts) - len(files.resolved)
            if not missing and self._is_settled():
                break
            tick.wait(_SAMPLE_INTERVAL_S)
        return time.monotonic() - began_s

    def _is_settled(self) -> bool:
        """Whether nothing is unresolved, and closed shards are finished."""
        if not self._seen.samples:
            return False
        states = self._seen.samples[-1].states
        return not any(state.unresolved_count for state in states.values()) and all(
            shard.is_open or _is_finished(states, shard.shard_id)
            for shard in self._fake.shards(STREAM)
        )

    # loops ----------------------------------------------------------------------------------------
    def _producer(self) -> Callable[[Random], None]:
        numbers = dict.fromkeys((f"key-{number}" for number in range(KEYS)), 0)
        keys = list(numbers)
        due = 0.0

        def produce(random: Random) -> None:
            nonlocal due
            due += self._pace.records_per_s * _PUT_INTERVAL_S
            while due >= 1:
                due -= 1
                key = random.choice(keys)
                data = f"{key} {numbers[key]} ".encode() + PADDING
                at_ns = time.monotonic_ns()
                shard, _, sequence = self._fake.put(STREAM, key, data).partition(":")
                self._seen.puts.append(Put(key, numbers[key], shard, int(sequence), at_ns))
                numbers[key] += 1

        return produce

    def _reshard(self, random: Random) -> None:
        self._seen.counts[reshard(self._fake, random, STREAM)] += 1

    def _kill(self, random: Random) -> None:
        """Kill one of the tasks that may be killed, or close it in order, and start its successor
        some time later.
        """
        task = random.randrange(STEADY)
        if random.random() < _CLOSED_IN_ORDER:
            self._seen.closing_s += self._spouts.close([task])
            self._ending.wait(random.uniform(0, 2))
            self._spouts.start(task)
        else:
            self._kill_and_wait(task, random)

    def _kill_and_wait(self, task: int, random: Random) -> None:
        """Every other process looks as if it ran on another machine than its successor."""
        waits = random.random() < 0.5
        node = self._states.make_foreign(TaskShare(task, TASKS)) if waits else None
        fault = self._spouts.kill(task, waits=node is not None)
        self._ending.wait(random.uniform(0, 2))
        self._spouts.start(task)
        free_ns = time.monotonic_ns()
        if node is not None:
            free_ns = self._states.wait_gone(*node, timeout_s=_LAPSE_LIMIT_S) or 0
        self._seen.faults.append(fault._replace(free_ns=free_ns))

    def _disturb_zookeeper(self, random: Random) -> None:
        if random.random() < 0.5:
            self._server.kill()
            self._seen.counts["ZooKeeper killed"] += 1
        else:
            away_s = random.uniform(*self._pace.zookeeper_away_s)
            self._server.restart(lambda: self._ending.wait(away_s))
            self._seen.counts["ZooKeeper stopped and started"] += 1

    def _sample(self, _random: Random) -> None:
        processes = {
            one.run: use
            for one in list(self._spouts.running.values())
            if (use := use_of(one.process.pid)) is not None
        }
        at_s = time.monotonic() - self._began_s
        self._seen.troubles += self._spouts.ended()
        if self._seen.troubles:
            self._ending.set()
        self._sample_states()
        shards = len(self._fake.shards(STREAM))
        states = len(self._seen.samples[-1].states) if self._seen.samples else 0
        self._seen.use.append(UseSample(at_s, processes, self._server.znodes(), shards, states))
        self._forget_old_shards()

    def _sample_states(self) -> None:
        began_ns = time.monotonic_ns()
        states = self._states.read()
        if states:
            self._seen.samples.append(Sample(began_ns, time.monotonic_ns(), states))

    def _forget_old_shards(self) -> None:
        """Let the retention of closed shards pass that all tasks are done with. So shards come and
        go, as they do in a year.
        """
        if not self._seen.samples:
            return
        states = self._seen.samples[-1].states
        now_ms = self._fake.clock.now_ms()
        with self._fake.lock:
            shards = self._fake.stream(STREAM).shards
            old = [
                shard.shard_id
                for shard in shards.values()
                if shard.closed_ms is not None
                and shard.closed_ms < now_ms - _OLD_S * 1000
                and _is_finished(states, shard.shard_id)
                and all(child in states for child in shard.children)
            ]
            for shard_id in old:
                del shards[shard_id]
        self._seen.counts["shards past retention"] += len(old)


def _is_finished(states: Mapping[str, ShardState], shard_id: str) -> bool:
    return shard_id in states and states[shard_id].finished


def spout_soak(
    setting: Setting, minutes: float, directory: Path, tell: Callable[[str], object]
) -> Drilled:
    """The soak as a drill, with its figures among the notes. Blocks."""
    pace = Pace(records_per_s=setting.records_per_s)
    outcome = Soak(directory, seed=setting.seed, pace=pace, tell=tell).run(minutes * 60)
    figures = levels(outcome.use, outcome.steady_run)
    grown = [str(level) for level in figures if not level.is_level]
    return Drilled(
        drill="soak",
        history=outcome.history,
        drained_s=outcome.drained_s,
        notes=[f"{outcome.steady_run}: {level}" for level in figures],
        troubles=[*outcome.troubles, *(f"{outcome.steady_run} grows: {one}" for one in grown)],
    )
