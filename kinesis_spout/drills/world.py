"""All that runs in a drill: Kinesis, ZooKeeper, the job, the producers; and what watches them in a
thread: what is stored, which shards there are, what the processes use.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING

from kinesis_spout.drills.consumer import REGION, RETRY_LIMIT, aws_of
from kinesis_spout.drills.history.checks import left
from kinesis_spout.drills.history.events import Fault, History, Sample, ShardLife, Step
from kinesis_spout.drills.job import Job
from kinesis_spout.drills.setting import DrillError, Need
from kinesis_spout.drills.stream import DrillStream, OwnStream, Producers, numbered
from kinesis_spout.drills.use import ZOOKEEPER, process_uses, znode_use
from kinesis_spout.drills.zookeeper import CHROOT, StoredStates, ZookeeperServers
from kinesis_spout.errors import KinesisError
from kinesis_spout.programs import load_function
from kinesis_spout.threads import ThreadLoop
from state.plan import plan_number

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kinesis_spout.drills.setting import Setting

KILL = "kill -9 of the driver"
MAX_RESTARTS = 5  # of processes that ended by themselves, since the last fault
WAIT_LIMIT_S = 120.0
_MOST_WAITS = 5  # times the limit: a job that repeats the same records for ever must end the drill
_TICK_S = 0.1
INTERVAL_S = 0.5
_ENDED = " ended by itself"  # the end of a fault's name
_BETWEEN_USES = 4  # samples; to look at all processes of a job costs more
_TICK = threading.Event()  # never set


class Samples:
    """Samples between `start` and `stop`. `states`, `uses` and `shards` grow meanwhile."""

    def __init__(
        self, stream: DrillStream, stored: StoredStates, zookeeper: ZookeeperServers, job: Job
    ) -> None:
        self._stream = stream
        self._stored = stored
        self._zookeeper = zookeeper
        self._job = job
        self._loop: ThreadLoop  # from `start` on
        self._lock = threading.Lock()
        self._turn = 0
        self.states: list[Sample] = []
        self.uses: dict[str, list[tuple[float, Counter[str]]]] = defaultdict(list)
        self.shards: dict[str, ShardLife] = {}

    def start(self, fail: Callable[[Exception], None]) -> None:
        """`fail` gets the error that ends the thread."""
        self._loop = ThreadLoop.start("samples", self._sample, fail)

    def stop(self) -> None:
        """Idempotent."""
        self._loop.stop()
        self._loop.join(None)

    def sample_shards(self) -> None:
        """List the shards, and note which are new or closed since."""
        seen = self._stream.shards()
        now_ns = time.monotonic_ns()
        with self._lock:
            for one in seen:
                new = ShardLife(one.shard_id, one.parents, now_ns, None, *one.hash_key_range)
                life = self.shards.setdefault(one.shard_id, new)
                if life.closed_ns is None and one.is_closed:
                    self.shards[one.shard_id] = life._replace(closed_ns=now_ns)

    def sample_states(self) -> None:
        """Nothing while ZooKeeper does not answer."""
        began_ns = time.monotonic_ns()
        states = self._stored.read()
        if states is not None:
            with self._lock:
                self.states.append(Sample(began_ns, time.monotonic_ns(), states))

    def _sample(self) -> float:
        self.sample_states()
        with suppress(KinesisError):  # the next sample lists them
            self.sample_shards()
        if self._turn % _BETWEEN_USES == 0:
            at_s = time.monotonic()
            for subject, use in process_uses(self._job.pids):
                self.uses[subject].append((at_s, use))
            if (znodes := self._zookeeper.znodes()) is not None and self.states:
                use = znode_use(znodes, len(self.states[-1].states))
                self.uses[ZOOKEEPER].append((at_s, use))
        self._turn += 1
        return INTERVAL_S


@dataclass(slots=True, kw_only=True)
class World:
    """For one thread. `tell` gets a sentence now and then.

    - `errors`: those that ended the threads of the samples and of the producers.
    - `faults`: what was done to it. `notes`: what a reader of the verdict should know.
    - `max_restarts`: how often processes that end by themselves are started again, as a supervisor
      would, since anything else was done to it. Their ends are faults.
    - `down`: a fault that ends when a successor of the killed process works, and the number of the
      newest plan at its begin.
    """

    directory: Path
    setting: Setting
    tell: Callable[[str], object]
    stream: DrillStream
    zookeeper: ZookeeperServers
    stored: StoredStates
    job: Job
    samples: Samples
    producers: Producers
    errors: list[Exception]
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    max_restarts: int = 0
    down: tuple[Fault, int] | None = None

    # what is done to it ---------------------------------------------------------------------------
    @property
    def own_stream(self) -> OwnStream:
        """The stream of the drill's own Kinesis. Raises `DrillError` where it is another one."""
        if not isinstance(self.stream, OwnStream):
            raise DrillError("only the drill's own Kinesis can inject faults")
        return self.stream

    def kill(self, name: str = KILL) -> None:
        """Kill the job's first process with all below it, which is a fault."""
        self.faults.append(self.job.kill(name))

    @contextmanager
    def fault(self, name: str, *, run: str = "", rewinds: bool = False) -> Iterator[None]:
        """What the context does is a fault of this name (`Fault`)."""
        began_ns = time.monotonic_ns()
        yield
        self.add_fault(name, began_ns, run=run, rewinds=rewinds)

    def add_fault(self, name: str, began_ns: int, *, run: str = "", rewinds: bool = False) -> None:
        """A fault that is over now."""
        self.faults.append(Fault(name, began_ns, time.monotonic_ns(), run, rewinds=rewinds))

    def start(self, stop_at: str | None = None) -> str:
        """Start the job where it does not run, and return its run. A fault that had killed it
        lasts until it makes a plan of its own, or has come to the failpoint: until then Spark may
        repeat a batch that nobody can report any more.
        """
        run = self.job.start(stop_at)
        if self.down is not None:
            (fault, newest), self.down = self.down, None
            self.wait_until(
                lambda: self.newest_plan > newest or self.job.marker(run).exists(), "a new plan"
            )
            self.faults.append(fault._replace(ended_ns=time.monotonic_ns()))
        return run

    @property
    def newest_plan(self) -> int:
        """The number of the newest plan; 0 if there is none."""
        return max(map(plan_number, self.stored.names("batches")), default=0)

    # waiting --------------------------------------------------------------------------------------
    def wait_until(
        self, fact: Callable[[], bool], what: str, *, limit_s: float = WAIT_LIMIT_S
    ) -> None:
        """Wait until the fact is one. Meanwhile a process that ends by itself is started again.

        A slow machine is no fault of the job: raises `DrillError` when the job has reported nothing
        for `limit_s` seconds, and in any case after five times as long.
        """
        began_s = last_s = time.monotonic()
        known = len(self.job.read())
        while not fact():
            now_s = time.monotonic()
            if (told := len(self.job.read())) > known:
                known, last_s = told, now_s
            if now_s > min(last_s + limit_s, began_s + _MOST_WAITS * limit_s):
                raise DrillError(
                    f"{what} did not happen within {now_s - began_s:.0f} s: {self._slow()}"
                )
            self.look_after()
            _TICK.wait(_TICK_S)

    def wait(self, seconds: float) -> None:
        """Let so many seconds pass, and look after the processes meanwhile."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self.look_after()
            _TICK.wait(min(_TICK_S, left_s))

    def work(self, more: int) -> None:
        """Wait until so many more records are acked or dead-lettered than now: the job works."""
        self.job.read()
        wanted = len(self.job.resolved) + more
        self.wait_until(
            lambda: bool(self.job.read()) and len(self.job.resolved) >= wanted,
            f"an ack or a dead letter for {more} more records",
        )

    def wait_for_end(self, cause: str) -> tuple[str, str]:
        """Wait until a process ends by itself because of `cause`, and return its run and its last
        lines. It is not started again.
        """
        deadline_s = time.monotonic() + WAIT_LIMIT_S
        while not (ended := next(self.job.ended(), None)):
            self._check()
            if time.monotonic() > deadline_s:
                raise DrillError(
                    f"{cause} did not end the job within {WAIT_LIMIT_S:.0f} s: {self._slow()}"
                )
            _TICK.wait(_TICK_S)
        self._note(f"{cause} ended {ended[0]}: {_last_line(ended[1])}")
        return ended

    def _note(self, sentence: str) -> None:
        self.notes.append(sentence)
        self.tell(sentence)

    def _check(self) -> None:
        for error in self.errors:
            raise error

    def look_after(self) -> None:
        """Raise what has ended the producers or the samples, and start processes again that ended
        by themselves, as a supervisor would.
        """
        self._check()
        now_ns = time.monotonic_ns()
        for run, words in self.job.ended():
            last = _last_line(words)
            ends = takewhile(lambda one: one.name.endswith(_ENDED), reversed(self.faults))
            if sum(1 for _ in ends) >= self.max_restarts:
                when = " again" if self.max_restarts else ""
                raise DrillError(f"{run} ended unexpectedly{when}: {last}")
            self._note(f"{run} ended unexpectedly and was restarted: {last}")
            self.faults.append(Fault(f"{run}{_ENDED}", now_ns, now_ns, run=run))
            self.job.start()

    @property
    def log(self) -> str:
        """The file of the process that was started last; "" before the first one."""
        return str(self.job.log(list(self.job.tasks)[-1])) if self.job.tasks else ""

    def _slow(self) -> str:
        """How far the job has come, and where to look."""
        told = self.job.told()
        if told:
            since_s = (time.monotonic_ns() - told[-1].at_ns) / 1e9
            done = (
                f"the function was called {since_s:.0f} s ago and has not returned"
                if told[-1].step is Step.GOT
                else f"the last ack or dead letter was {since_s:.0f} s ago"
            )
            done += f"; acked or dead-lettered so far: {len(self.job.resolved):,}"
        elif self.samples.states:
            done = "the job has its shards in ZooKeeper, but its function has not received a record"
        else:
            done = "the job has stored nothing in ZooKeeper, so it is still starting"
        reason = next((one.reason for one in reversed(told) if one.reason), "")
        why = f"; the last failed record's reason is {reason!r}" if reason else ""
        return f"{done}{why}" + (f"; see {PurePath(self.log).name}" if self.log else "")

    # the end --------------------------------------------------------------------------------------
    def drain(self, limit_s: float) -> float:
        """Stop the producers and wait until all is processed and stored, as `wait_until`. Returns
        the seconds it took. The verdict says what is missing then.
        """
        self.producers.stop()
        self.tell(
            f"{len(self.producers.puts)} records were put; the drill waits until the job has read "
            "all of them"
        )
        began_s = time.monotonic()
        try:
            self.wait_until(self._is_drained, "the end of the backlog", limit_s=limit_s)
        except DrillError as exc:
            self.notes.append(str(exc))
        return time.monotonic() - began_s

    def _is_drained(self) -> bool:
        self.job.read()
        if not self.job.resolved >= {put.record for put in self.producers.puts}:
            return False
        self.samples.sample_shards()
        seen = History(
            puts=self.producers.puts,
            samples=list(self.samples.states),
            shards=dict(self.samples.shards),
        )
        return not any(left(seen))

    def history(self) -> History:
        """All that happened. The job has ended."""
        self.samples.stop()
        self.samples.sample_states()
        self.samples.sample_shards()
        return History(
            puts=self.producers.puts,
            told=self.job.told(self.producers.puts),
            faults=sorted(self.faults, key=lambda fault: fault.began_ns),
            samples=self.samples.states,
            tasks=self.job.tasks,
            shards=dict(self.samples.shards),
            fates_known=self.setting.fates_known,
            retry_limit=RETRY_LIMIT,
        )


@contextmanager
def opened(
    directory: Path, setting: Setting, tell: Callable[[str], object], *, spout_tasks: int = 2
) -> Iterator[World]:
    """A world in which all runs but the job and the producers. At the end of the context all of it
    ends.
    """
    with ExitStack() as stack:
        stream = _stream(setting)
        stack.enter_context(stream)
        zookeeper = ZookeeperServers(directory / "zookeeper", setting.has)
        stack.callback(zookeeper.end)
        zookeeper.start()
        stored = StoredStates(zookeeper.connect_string, stream.name)
        stack.callback(stored.close)
        server = zookeeper.connect_string
        if Need.LINK in setting.has:
            server = stack.enter_context(zookeeper.link).address + CHROOT
        job = Job(directory, setting, stream, server, spout_tasks=spout_tasks)
        stack.callback(job.end)
        samples = Samples(stream, stored, zookeeper, job)
        samples.sample_shards()
        errors: list[Exception] = []
        samples.start(errors.append)
        stack.callback(samples.stop)
        producers = Producers(
            stream,
            errors.append,
            records_per_s=setting.records_per_s,
            seed=setting.seed,
            payload=load_function(setting.payload) if setting.payload else numbered,
        )
        stack.callback(producers.stop)
        yield World(
            directory=directory,
            setting=setting,
            tell=tell,
            stream=stream,
            zookeeper=zookeeper,
            stored=stored,
            job=job,
            samples=samples,
            producers=producers,
            errors=errors,
        )


def _last_line(words: str) -> str:
    return words.strip().rpartition("\n")[2][:300]


def _stream(setting: Setting) -> DrillStream:
    if setting.is_fake:
        return OwnStream("drill")
    aws = aws_of(
        region=setting.region or (REGION if setting.is_emulator else None),
        endpoint=setting.endpoint_url,
        is_local=setting.is_emulator,
    )
    name = f"{setting.stream_prefix or 'kinesis-spout'}-drill-{secrets.token_hex(3)}"
    return DrillStream(name, aws, is_local=setting.is_emulator)
