"""All that runs in a drill: Kinesis, ZooKeeper, the job, the producers, and what watches them."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from kinesis_spout.drills.credentials import REGION, aws_of
from kinesis_spout.drills.history.checks import left
from kinesis_spout.drills.history.events import Fault, History, Step
from kinesis_spout.drills.patience import Patience
from kinesis_spout.drills.spark_arguments import RETRY_LIMIT
from kinesis_spout.drills.world.ensemble import ZookeeperEnsemble
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.job_clock import JobClock
from kinesis_spout.drills.world.kinesis import OwnStream
from kinesis_spout.drills.world.link import Link
from kinesis_spout.drills.world.producers import Producers, numbered
from kinesis_spout.drills.world.remote_stream import RemoteStream
from kinesis_spout.drills.world.samples import Samples
from kinesis_spout.drills.world.setting import Extra
from kinesis_spout.drills.world.spark_conf import spark_arguments
from kinesis_spout.drills.world.spark_job import SparkJob
from kinesis_spout.drills.world.spout_job import SpoutJob
from kinesis_spout.drills.world.told_files import ToldFiles
from kinesis_spout.drills.world.zookeeper import StoredStates, ZookeeperServer
from kinesis_spout.programs.modules import load_function

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinesis_spout.drills.world.job import Job
    from kinesis_spout.drills.world.kinesis import DrillStream
    from kinesis_spout.drills.world.setting import Setting
    from kinesis_spout.drills.world.zookeeper import ZookeeperServers

STREAM = "drill"
SPARK_APPLICATION = "drill"
SPOUT_APPLICATION = "soak"
MAX_RESTARTS = 5  # of processes that ended by themselves, since the last fault
WAIT_LIMIT_S = 120.0
_TICK_S = 0.1


class World:
    """Runs once, as a context manager: entering starts all but the job and the producers, leaving
    ends all. For one thread. `tell` gets a sentence now and then.

    `faults`: what was done to it, which the acts of drills append. `notes`: what a reader of the
    verdict should know. `is_disturbed`: something was done to it, so that a process may end by
    itself, and be started again: `max_restarts` times since the last fault. `ended`: the runs that
    did so. `link`: the job's way to ZooKeeper, if the drill wants one; nobody else goes by it.
    """

    def __init__(self, directory: Path, setting: Setting, tell: Callable[[str], object]) -> None:
        self.directory = directory
        self.setting = setting
        self.tell = tell
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.ended: list[str] = []
        self.stream: DrillStream = _stream(setting)
        zookeeper = ZookeeperEnsemble if setting.ensemble else ZookeeperServer
        self.zookeeper: ZookeeperServers = zookeeper(directory / "zookeeper")
        self._stack = ExitStack()
        self._tick = threading.Event()
        self._restarts = self._restarts_of = 0
        self.is_disturbed = False
        self.max_restarts = MAX_RESTARTS
        self.link: Link | None = None
        self.job_clock = JobClock(directory / "job-clock")
        self.job: Job
        self.stored: StoredStates
        self.samples: Samples
        self.producers: Producers
        self.files: ToldFiles

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.stream)
            stack.callback(self.zookeeper.end)
            self.zookeeper.start()
            self.stored = StoredStates(
                self.zookeeper.connect_string,
                application=SPOUT_APPLICATION if self.setting.spout else SPARK_APPLICATION,
                stream=self.stream.name,
            )
            stack.callback(self.stored.close)
            if Extra.LINK in self.setting.extras:
                server = self.zookeeper.connect_string.partition("/")[0]
                self.link = stack.enter_context(Link(server))
            self.job = self._job()
            stack.callback(self.job.end)
            self.files = ToldFiles(self.job)
            self.samples = Samples(self.stream, self.stored, self.zookeeper, self.job)
            self.samples.sample_shards()
            self.samples.start()
            stack.callback(self.samples.stop)
            self.producers = Producers(
                self.stream,
                records_per_s=self.setting.records_per_s,
                seed=self.setting.seed,
                payload=load_function(self.setting.payload) if self.setting.payload else numbered,
            )
            stack.callback(self.producers.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _job(self) -> Job:
        zookeeper = self.zookeeper.connect_string
        if self.link is not None:
            zookeeper = self.link.address + zookeeper[zookeeper.index("/") :]
        extras = self.setting.extras
        variables = self.job_clock.variables() if Extra.CLOCK in extras else {}
        if self.setting.spout:
            return SpoutJob(
                self.directory,
                self.stream,
                zookeeper,
                seed=self.setting.seed,
                variables=variables,
                is_poisoned=Extra.POISON in extras,
                efo=self.setting.efo,
            )
        arguments = spark_arguments(
            self.directory,
            self.setting,
            self.stream,
            zookeeper=zookeeper,
            application=SPARK_APPLICATION,
        )
        return SparkJob(
            self.directory, arguments, is_local=self.stream.is_local, variables=variables
        )

    # waiting --------------------------------------------------------------------------------------
    def wait_until(
        self, fact: Callable[[], bool], what: str, *, limit_s: float = WAIT_LIMIT_S
    ) -> None:
        """Wait until the fact is one. Meanwhile a process that ends by itself is started again.
        Raises `DrillError` when `limit_s` seconds brought neither it nor anything from the job.
        """
        patience = Patience(limit_s, told=self.files.lines, now_s=time.monotonic())
        while not fact():
            self.files.read()
            if patience.is_over(self.files.lines, now_s := time.monotonic()):
                waited_s = patience.waited_s(now_s)
                raise DrillError(f"{what} did not happen within {waited_s:.0f} s: {self._slow()}")
            self.look_after()
            self._tick.wait(_TICK_S)

    def wait_s(self, seconds: float) -> None:
        """Let so many seconds pass, and look after the processes meanwhile."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self.look_after()
            self._tick.wait(min(_TICK_S, left_s))

    def wait_for_acks(self, more: int) -> None:
        """Wait until so many more records are acked or dead-lettered than now."""
        self.files.read()
        wanted = len(self.files.resolved) + more

        def have_come() -> bool:
            self.files.read()
            return len(self.files.resolved) >= wanted

        self.wait_until(have_come, f"the outcome of {more} more records")

    def wait_for_failpoint(self, run: str, name: str) -> None:
        marker = self.job.marker(run)
        self.wait_until(
            lambda: marker.exists() and bool(marker.read_text()), f"{run}'s arrival at {name}"
        )

    def wait_for_end(self, of: str) -> tuple[str, str]:
        """Wait until a process ends by itself because `of` something, and return its run and its
        last words. It is not started again.
        """
        deadline_s = time.monotonic() + WAIT_LIMIT_S
        while not (ended := self.job.ended()):
            self.producers.check()
            if time.monotonic() > deadline_s:
                self.files.read()
                raise DrillError(
                    f"the job did not end of {of} within {WAIT_LIMIT_S:.0f} s: {self._slow()}"
                )
            self._tick.wait(_TICK_S)
        run, words = ended[0]
        self.tell(f"{run} ended of {of}: {_last_line(words)}")
        self.notes.append(f"{run} ended of {of}: {_last_line(words)}")
        return run, words

    def note_fault(self, name: str, began_ns: int, *, run: str = "", rewinds: bool = False) -> None:
        """Something was done to the world from `began_ns` on, and is over now. `run` and `rewinds`
        are those of a `Fault`.
        """
        self.faults.append(Fault(name, began_ns, time.monotonic_ns(), run, rewinds=rewinds))

    def look_after(self) -> None:
        """Raise what has ended the producers, and start processes again that ended by themselves,
        as a supervisor would.
        """
        self.producers.check()
        now_ns = time.monotonic_ns()
        for run, words in self.job.ended():
            self._restarts = self._restarts + 1 if self._restarts_of == len(self.faults) else 1
            last = _last_line(words)
            if not self.is_disturbed or self._restarts > self.max_restarts:
                before = "before anything was done to it" if not self.is_disturbed else "again"
                raise DrillError(f"{run} ended by itself {before}: {last}")
            self.tell(f"{run} ended by itself and is started again: {last}")
            self.notes.append(f"{run} ended by itself and was started again: {last}")
            self.ended.append(run)
            self.faults.append(Fault(f"{run} ended by itself", now_ns, now_ns, run=run))
            self._restarts_of = len(self.faults)
            self.job.start()

    @property
    def log(self) -> Path | None:
        """Of the process that was started last; None before the first one."""
        runs = list(self.job.tasks)
        return self.job.log(runs[-1]) if runs else None

    def _slow(self) -> str:
        """How far the job has come, and where to look."""
        see = "" if self.log is None else f"; see {self.log.name}"
        last = self.files.last
        if last is not None:
            last_s = (time.monotonic_ns() - last.at_ns) / 1e9
            done = (
                f"the function was called and has not returned for {last_s:.0f} s"
                if last.step is Step.GOT
                else f"the last outcome of a record was {last_s:.0f} s ago"
            )
            done += f"; acked or dead-lettered so far: {len(self.files.resolved):,}"
        elif self.samples.states:
            done = "the job has its shards in ZooKeeper, and its function has not got a record yet"
        else:
            done = "the job has stored nothing in ZooKeeper, so it was still starting"
        reason = self.files.last_reason
        why = f"; the last record that failed says {reason!r}" if reason else ""
        return f"{done}{why}{see}"

    # the end --------------------------------------------------------------------------------------
    def drain(self, limit_s: float) -> float:
        """Stop the producers and wait until all is processed and stored, as `wait_until`. Returns
        the seconds it took. What is missing then, the verdict says.
        """
        self.producers.stop()
        self.tell(f"{len(self.producers.puts)} records were put; draining")
        began_s = time.monotonic()
        try:
            self.wait_until(self._is_drained, "the end of the backlog", limit_s=limit_s)
        except DrillError as exc:
            self.notes.append(str(exc))
        return time.monotonic() - began_s

    def history(self) -> History:
        """All that happened. The job has ended."""
        self.samples.stop()
        self.samples.sample_states()
        self.samples.sample_shards()
        self.files.read()
        return History(
            puts=self.producers.puts,
            told=self.files.told(self.producers.puts),
            faults=sorted(self.faults, key=lambda fault: fault.began_ns),
            samples=self.samples.states,
            tasks=dict(self.job.tasks),
            shards=dict(self.samples.shards),
            fates_known=self.setting.fates_known,
            retry_limit=RETRY_LIMIT,
        )

    def _is_drained(self) -> bool:
        self.files.read()
        if not self.files.resolved >= {put.record for put in self.producers.puts}:
            return False
        self.samples.sample_shards()
        seen = History(
            puts=self.producers.puts,
            samples=list(self.samples.states),
            shards=dict(self.samples.shards),
        )
        return not any(left(seen))


def _last_line(words: str) -> str:
    return words.strip().rpartition("\n")[2][:300]


def _stream(setting: Setting) -> DrillStream:
    if setting.is_fake:
        return OwnStream(STREAM)
    aws = aws_of(
        region=setting.region or (REGION if setting.is_emulator else None),
        endpoint=setting.endpoint_url,
        is_local=setting.is_emulator,
    )
    name = f"{setting.stream_prefix or 'kinesis-spout'}-drill-{secrets.token_hex(3)}"
    return RemoteStream(name, aws, is_local=setting.is_emulator)
