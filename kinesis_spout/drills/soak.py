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
from kinesis_spout.drills.history.checks import left
from kinesis_spout.drills.history.events import Fault, History, Put, Sample, ShardLife, Told
from kinesis_spout.drills.random_soak import NAME
from kinesis_spout.drills.spark_arguments import RETRY_LIMIT
from kinesis_spout.drills.spout_program import STREAM
from kinesis_spout.drills.world.disturbances import disturb, empty_pages, reshard, struck
from kinesis_spout.drills.world.kinesis import shards_of
from kinesis_spout.drills.world.samples import life
from kinesis_spout.drills.world.spout_processes import SpoutProcesses
from kinesis_spout.drills.world.told_files import ToldFiles
from kinesis_spout.drills.world.use import UseSample, level_notes, levels, use_of
from kinesis_spout.drills.world.zookeeper import StoredStates, ZookeeperServer
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from state.store.ownership import TaskShare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
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

    fault_s: tuple[float, float] = (0.05, 1.2)
    empty_s: tuple[float, float] = (2.0, 8.0)
    reshard_s: tuple[float, float] = (4.0, 14.0)
    kill_s: tuple[float, float] = (6.0, 16.0)
    zookeeper_s: tuple[float, float] = (25.0, 60.0)
    zookeeper_away_s: tuple[float, float] = (0.0, 12.0)


_SHORT_S = 120.0  # a soak that is shorter is quicker, so that it has some of all events
_QUICK = Pace(
    reshard_s=(2.0, 6.0), kill_s=(3.0, 6.0), zookeeper_s=(6.0, 12.0), zookeeper_away_s=(0.0, 4.0)
)


@dataclass(slots=True)
class _Seen:
    puts: list[Put] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    shards: dict[str, ShardLife] = field(default_factory=dict)
    use: list[UseSample] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)
    closing_s: list[float] = field(default_factory=list)


class Soak:
    """Runs once. `tell` gets a sentence now and then."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        records_per_s: float,
        efo: bool,
        tell: Callable[[str], object],
    ) -> None:
        self._directory = directory
        self._efo = efo
        self._seed = seed
        self._records_per_s = records_per_s
        self._tell = tell
        self._seen = _Seen()
        self._ending = threading.Event()
        self._shards_lock = threading.Lock()
        self._fake = FakeKinesis()
        self._server = ZookeeperServer(directory / "zookeeper")
        self._began_s = 0.0

    def run(self, seconds: float) -> Drilled:
        """Disturb for so many seconds, then let it drain and close. Blocks."""
        self._fake.create(STREAM, shards=FIRST_SHARDS)
        self._sample_shards()
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
                efo=self._efo,
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
        grown = (one for one in levels(self._seen.use, steady_run) if not one.is_level)
        return Drilled(
            drill=NAME,
            history=self._history(files.told()),
            drained_s=drained_s,
            notes=[*self._events(), *level_notes(self._seen.use, steady_run)],
            troubles=[*self._seen.troubles, *(f"{steady_run} grows: {one}" for one in grown)],
        )

    def _history(self, told: Sequence[Told] = ()) -> History:
        return History(
            puts=self._seen.puts,
            told=told,
            faults=sorted(self._seen.faults, key=lambda fault: fault.began_ns),
            samples=self._seen.samples,
            tasks=self._spouts.tasks,
            shards=self._seen.shards,
            retry_limit=RETRY_LIMIT,
        )

    def _events(self) -> Iterator[str]:
        """What happened beside the kills, which are the faults of the history."""
        counts = self._seen.counts
        yield ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
        away_s = [(end_ns - begin_ns) / 1e9 for begin_ns, end_ns in self._server.away]
        if away_s:
            yield f"ZooKeeper was away {len(away_s)} times, for {max(away_s):.1f} s at most"
        if self._seen.closing_s:
            yield (
                f"{len(self._seen.closing_s)} processes were closed in order, within "
                f"{max(self._seen.closing_s):.1f} s"
            )
        faults = struck(self._fake)
        yield f"{faults.total():,} calls of the service were struck, in {len(faults)} ways"

    # phases ---------------------------------------------------------------------------------------
    def _disturb(self, seconds: float) -> None:
        pace = _QUICK if seconds < _SHORT_S else Pace()
        each_s = (_PUT_INTERVAL_S, _PUT_INTERVAL_S)
        sampled_s = (_SAMPLE_INTERVAL_S, _SAMPLE_INTERVAL_S)
        loops: list[tuple[tuple[float, float], Callable[[Random], object]]] = [
            (each_s, self._producer()),
            (sampled_s, self._sample),
            (pace.fault_s, lambda random: disturb(self._fake, random, self._ending.wait)),
            (pace.empty_s, lambda random: empty_pages(self._fake, random, STREAM)),
            (pace.reshard_s, self._reshard),
            (pace.kill_s, self._kill),
            (pace.zookeeper_s, lambda random: self._disturb_zookeeper(pace, random)),
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
            if not missing and not any(left(self._history())):
                break
            tick.wait(_SAMPLE_INTERVAL_S)
        return time.monotonic() - began_s

    # loops ----------------------------------------------------------------------------------------
    def _producer(self) -> Callable[[Random], None]:
        numbers = dict.fromkeys((f"key-{number}" for number in range(KEYS)), 0)
        keys = list(numbers)
        due = 0.0

        def produce(random: Random) -> None:
            nonlocal due
            due += self._records_per_s * _PUT_INTERVAL_S
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
        self._seen.counts[f"{reshard(self._fake, random, STREAM)}s"] += 1
        self._sample_shards()

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
        """Every other process looks as if it ran on another machine than its successor, which
        waits for the session to lapse then. The next kill comes after that.
        """
        is_foreign = random.random() < 0.5
        node = self._states.make_foreign(TaskShare(task, TASKS)) if is_foreign else None
        fault = self._spouts.kill(task)
        self._ending.wait(random.uniform(0, 2))
        self._spouts.start(task)
        if node is not None:
            self._states.wait_gone(*node, timeout_s=_LAPSE_LIMIT_S)
            fault = fault._replace(name=f"{fault.name}, as if it were of another machine")
        self._seen.faults.append(fault)

    def _disturb_zookeeper(self, pace: Pace, random: Random) -> None:
        if random.random() < 0.5:
            self._server.kill()
        else:
            away_s = random.uniform(*pace.zookeeper_away_s)
            self._server.restart(lambda: self._ending.wait(away_s))

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

    def _sample_shards(self) -> None:
        with self._shards_lock:
            for one in shards_of(self._fake, STREAM):
                known = self._seen.shards.get(one.shard_id)
                self._seen.shards[one.shard_id] = life(known, one, time.monotonic_ns())

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
    """The soak as a drill. Blocks."""
    soak = Soak(
        directory,
        seed=setting.seed,
        records_per_s=setting.records_per_s,
        efo=setting.efo,
        tell=tell,
    )
    return soak.run(minutes * 60)
