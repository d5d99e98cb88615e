"""Soaks: faults for a long time, drawn at random. The seed draws them, and cannot repeat their
times.

One plays the steps of all drills that fit, one drill after the other, in one world. The spout's
disturbs three spouts in all ways at the same time: two are killed, one never is.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout import testing
from kinesis_spout.drills.drill import DRAIN_LIMIT_S, Drill, Outlasts
from kinesis_spout.drills.scenarios import DRILLS
from kinesis_spout.drills.setting import DrillError, Need
from kinesis_spout.drills.use import ZOOKEEPER, level_notes, levels
from kinesis_spout.drills.verbs import ITERATOR, READ, open_shards, width
from state.store.ownership import TaskShare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinesis_spout.drills.setting import Setting
    from kinesis_spout.drills.world import World
    from kinesis_spout.testing import FakeKinesis, Fault

SOAK = "soak"
LISTING = "ListShards"
TASKS = 3
STEADY = TASKS - 1  # the task that is never killed
MIN_SHARDS, MAX_SHARDS = 3, 8
_BETWEEN_S = (3.0, 12.0)
_FAULT_S = (0.05, 1.2)  # between two faults of the service
_OUTAGES, _BURSTS = 0.01, 0.1  # of all faults
_OUTAGE_S = (2.0, 8.0)
_AT_WORK = 50  # records that have an outcome before the next drill
_CLOSED_IN_ORDER = 0.2
_DRAIN_LIMIT_S = 240.0
_LAPSE_LIMIT_S = 60.0
_OLD_S = 10.0  # closed for so long, a finished shard is forgotten by the service
_TICK_S = 1.0

# The least and the most seconds between two events, and that ZooKeeper is away.
_PACE = {"empty": (2, 8), "reshard": (4, 14), "kill": (6, 16), "zookeeper": (25, 60)}
_PACE |= {"away": (0, 12)}
# A short soak is quicker, so that it has some of all events.
_QUICK = _PACE | {"reshard": (2, 6), "kill": (3, 6), "zookeeper": (6, 12), "away": (0, 4)}
_SHORT_S = 120.0


# one after the other ------------------------------------------------------------------------------
def fitting(setting: Setting) -> list[Drill]:
    """The drills whose steps can follow each other in one world of this setting."""
    missing = {Need.EXECUTORS, Need.ENSEMBLE} - setting.has
    return [
        one
        for one in DRILLS.values()
        if not one.is_cold
        and (setting.spout or not one.is_apart)
        and one.refusal(setting) is None
        and not one.needs & missing
    ]


def soak(setting: Setting, minutes: float) -> Drill:
    """Disturbs for so many minutes, then lets the job drain: all that was ever put may be
    redelivered at the end. The spout has a soak of its own, with a process that is never killed,
    where our own Kinesis can forget old shards.
    """
    sentence, seconds = f"disturb the job at random for {minutes:g} minutes", minutes * 60
    if setting.spout and setting.is_fake and Need.ENSEMBLE not in setting.has:
        return Drill(
            SOAK,
            sentence,
            (lambda world: _SpoutSoak(world).run(seconds),),
            outlasts=Outlasts.SPOUT,
            of_all=False,
            after=_judge_steady,
            spout_tasks=TASKS,
            drain_limit_s=_DRAIN_LIMIT_S,
        )
    drills = fitting(setting)
    return Drill(
        SOAK,
        sentence,
        (lambda world: _play_at_random(world, drills, seconds),),
        needs=frozenset(need for one in drills for need in one.needs),
        of_all=False,
        after=_note_longest,
        drain_limit_s=max(DRAIN_LIMIT_S, seconds / 2),
    )


def _play_at_random(world: World, drills: Sequence[Drill], seconds: float) -> None:
    """Between two drills, single answers of the service are faulty. In the second half only drills
    are drawn that the job's processes outlast, so that one lives long enough to show whether it
    grows.
    """
    if not drills:
        raise DrillError("no drill supports these options, so soak has nothing to run")
    random, end_s = _random(world.setting, 0), time.monotonic() + seconds
    sparing = [one for one in drills if one.outlasts is Outlasts.ANY] or drills
    while (left_s := end_s - time.monotonic()) > 0:
        _small_faults(world, random, min(left_s, random.uniform(*_BETWEEN_S)))
        world.work(_AT_WORK)
        one = random.choice(sparing if left_s < seconds / 2 else drills)
        world.tell(f"{one.name} starts: {one.sentence}")
        one.play(world)


def _note_longest(world: World) -> list[str]:
    uses = world.samples.uses
    longest = max(world.job.tasks, key=lambda run: len(uses[run]), default="")
    world.notes += level_notes(uses, longest)
    return []


def _small_faults(world: World, random: Random, seconds: float) -> None:
    """One after the other for so long, where the drill's own Kinesis can make them."""
    fake = world.stream.fake
    if fake is None:
        world.wait(seconds)
        return
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        _disturb(fake, random, world.wait)
        world.wait(random.uniform(*_FAULT_S))
    fake.faults.clear()


# all at the same time -----------------------------------------------------------------------------
def _judge_steady(world: World) -> list[str]:
    """The process that was never killed must not grow."""
    uses = world.samples.uses
    steady = next((run for run, task in world.job.tasks.items() if task == STEADY), "")
    world.notes += level_notes(uses, steady)
    of = levels(uses, steady, ZOOKEEPER)
    return [f"{one.subject} grows: {one}" for one in of if not one.is_level]


class _SpoutSoak:
    """Runs once. Each kind of event has a thread, and draws from the seed by itself. No spout may
    end by itself.
    """

    def __init__(self, world: World) -> None:
        self._world, self._fake = world, world.own_stream.fake
        self._ending = threading.Event()
        self._counts = Counter({"expired shards": 0})

    def run(self, seconds: float) -> None:
        world = self._world
        pace = _QUICK if seconds < _SHORT_S else _PACE

        def disturb_zookeeper(random: Random) -> None:
            if random.random() < 0.5:
                world.zookeeper.kill()
            else:
                world.zookeeper.restart(lambda: self._ending.wait(random.uniform(*pace["away"])))
            self._counts["outages of ZooKeeper"] += 1

        loops: list[tuple[tuple[float, float], Callable[[Random], object]]] = [
            (_FAULT_S, lambda random: _disturb(self._fake, random, self._ending.wait)),
            (pace["empty"], self._empty_pages),
            (pace["reshard"], self._reshard),
            (pace["kill"], self._kill),
            (pace["zookeeper"], disturb_zookeeper),
        ]
        end_s = time.monotonic() + seconds
        with ExitStack() as stack:
            stack.callback(lambda: world.notes.extend(self._notes()))  # when no thread counts
            pool = stack.enter_context(ThreadPoolExecutor(len(loops)))
            stack.callback(self._ending.set)
            running = [
                pool.submit(self._loop, _random(world.setting, number), *each)
                for number, each in enumerate(loops)
            ]
            while time.monotonic() < end_s and not self._ending.wait(_TICK_S):
                world.look_after()
                self._forget_old_shards()
        for loop in running:
            loop.result()
        self._fake.faults.clear()

    def _notes(self) -> Iterator[str]:
        """What happened beside the kills, which are the faults of the history."""
        yield ", ".join(f"{what}: {count:,}" for what, count in sorted(self._counts.items()))
        kinds = Counter(
            f"{operation} {fault.code or ('undecodable' if fault.replace else fault.kind.value)}"
            for operation, fault in self._fake.faults.struck
        )
        yield f"{kinds.total():,} requests to Kinesis met injected faults of {len(kinds)} kinds"

    def _loop(
        self, random: Random, between_s: tuple[float, float], act: Callable[[Random], object]
    ) -> None:
        try:
            while not self._ending.wait(random.uniform(*between_s)):
                act(random)
        finally:
            self._ending.set()  # one that raised ends all

    def _empty_pages(self, random: Random) -> None:
        shard = random.choice(open_shards(self._world))
        pages = random.randint(1, 10)
        self._fake.insert_empty_pages(self._world.stream.name, shard.shard_id, pages)

    def _reshard(self, random: Random) -> None:
        """Split or merge open shards."""
        stream, shards = self._world.stream, open_shards(self._world)
        if len(shards) < MAX_SHARDS and (len(shards) <= MIN_SHARDS or random.random() < 0.5):
            stream.split(random.choice([max(shards, key=width), *shards]).shard_id)
            self._counts["splits"] += 1
        else:
            at = random.randrange(len(shards) - 1)
            stream.merge(shards[at].shard_id, shards[at + 1].shard_id)
            self._counts["merges"] += 1
        self._world.samples.sample_shards()

    def _kill(self, random: Random) -> None:
        """Kill one of the tasks that may be killed, or close it in order, and start its successor
        some time later.

        Every other killed process looks as if it ran on another machine than its successor, which
        then waits for the session to lapse. The next kill comes after that.
        """
        job, task = self._world.job, random.randrange(STEADY)
        if random.random() < _CLOSED_IN_ORDER:
            job.close(task)
            self._counts["clean stops"] += 1
            self._ending.wait(random.uniform(0, 2))
            job.start_task(task)
            return
        stored, node = self._world.stored, None
        if random.random() < 0.5:
            node = stored.make_foreign(TaskShare(task, TASKS))
        fault = job.kill(task=task)
        self._ending.wait(random.uniform(0, 2))
        job.start_task(task)
        if node is not None:
            stored.wait_gone(*node, timeout_s=_LAPSE_LIMIT_S)
            fault = fault._replace(name=f"{fault.name}, as if on another machine")
        self._world.faults.append(fault)

    def _forget_old_shards(self) -> None:
        """Let the retention of closed shards pass that all tasks are done with. So shards come and
        go, as they do in a year.
        """
        samples = self._world.samples.states
        if not samples:
            return
        states, now_ms = samples[-1].states, self._fake.clock.now_ms()
        with self._fake.lock:
            shards = self._fake.stream(self._world.stream.name).shards
            for one in list(shards.values()):
                state = states.get(one.shard_id)
                is_old = one.closed_ms is not None and one.closed_ms < now_ms - _OLD_S * 1000
                is_done = state is not None and state.finished
                if is_old and is_done and all(child in states for child in one.children):
                    del shards[one.shard_id]
                    self._counts["expired shards"] += 1


# draws --------------------------------------------------------------------------------------------
def _random(setting: Setting, number: int) -> Random:
    return Random(f"{setting.seed} soak {number}")  # noqa: S311  # events to draw, not a secret


def _disturb(fake: FakeKinesis, random: Random, wait: Callable[[float], object]) -> None:
    """One more fault, in place of the one before: of a request or two mostly, of all of an
    operation until the next one at times, of all requests for some seconds now and then.
    """
    operation, fault = _drawn_fault(random)
    fake.faults.clear()  # else, faults for a spout that waits would pile up, and never end
    drawn = random.random()
    if drawn < _OUTAGES:
        fault = random.choice([testing.service_unavailable(), testing.drop()])
        fake.faults.add(fault, times=None)
        wait(random.uniform(*_OUTAGE_S))
    else:
        times = None if drawn < _BURSTS else random.randint(1, 2)
        fake.faults.add(fault, operation=operation, times=times)


def _drawn_fault(random: Random) -> tuple[str, Fault]:
    """A fault, and the operation that it strikes."""
    cut_json = msgspec.Raw(b'{"Records":[{"Data":"')
    anywhere = [
        testing.internal_failure(),
        testing.service_unavailable(),
        testing.drop(),
        testing.drop(processed=True),
        testing.truncate(),
        testing.replace(lambda _request: cut_json),
        testing.slow(random.uniform(0.1, 3.0)),
    ]
    of_operation = {
        READ: [*(testing.throttle(), testing.expired_iterator()) * 2],
        ITERATOR: [testing.throttle()],
        LISTING: [testing.limit_exceeded(), testing.duplicate_listing()],
    }
    operation = random.choices((READ, ITERATOR, LISTING), (6, 2, 2))[0]
    return operation, random.choice([*anywhere, *of_operation[operation]])
