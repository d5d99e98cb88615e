"""The job of a drill: processes that read the stream, of Spark or of the standalone spout, and the
lines in which they report what they do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.drills.consumer import SCRATCH, SCRATCH_VARIABLE, JobArguments
from kinesis_spout.drills.history.events import NO_NUMBER, Fault, RecordId, Told, parse_line
from kinesis_spout.drills.setting import DrillError, Need
from kinesis_spout.processes import kill_family
from kinesis_spout.programs import clean_environment, module_path
from state import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesis_spout.drills.history.events import Put
    from kinesis_spout.drills.setting import Setting
    from kinesis_spout.drills.stream import DrillStream

SPOUT_PROGRAM = "kinesis_spout.drills.spout_program"
SPARK_PROGRAM = "spark_job.commands.drill_job"  # started by name: Spark is above this package
CHECKPOINT, OUTAGES = "checkpoint", "outages"  # in the directory of the drill
CLOCK_VARIABLE = "KINESIS_SPOUT_DRILL_CLOCK"  # names the file that `set_clock` writes
CLOSING_LIMIT_S = 60.0
KILLED_TASK = 0  # a drill kills, freezes and replaces its process
_CLOCK_MODULES = Path(__file__).parent / "wrong_clock"  # Python imports them at its start
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for JVMs that live for seconds


@dataclass(slots=True)
class Running:
    """A process that was started. `is_ending`: it was killed or asked to end, or its end was
    reported.
    """

    run: str
    task: int
    process: subprocess.Popen[bytes]
    is_ending: bool = False

    def kill(self) -> None:
        """With all below it; returns when they are gone. Idempotent."""
        self.is_ending = True
        kill_family(self.process)
        if self.process.stdin is not None:
            self.process.stdin.close()


class Job:
    """Starts, closes and kills one process for each task: spouts that share the stream, or the
    driver of a small Spark job that starts quickly. One thread at a time may do so for a task;
    `read` and what it has read are for one thread.
    """

    def __init__(
        self,
        directory: Path,
        setting: Setting,
        stream: DrillStream,
        zookeeper: str,
        *,
        spout_tasks: int = 2,
        session_timeout_s: float = 4.0,
    ) -> None:
        self._directory = directory
        self._setting = setting
        self._stream = stream
        self._zookeeper = zookeeper
        self._session_timeout_s = session_timeout_s
        self._tasks = range(spout_tasks if setting.spout else 1)
        self._started: list[Running] = []
        self._read: dict[str, int] = {}
        self._told: list[Told] = []
        self.resolved: set[RecordId] = set()

    # processes ------------------------------------------------------------------------------------
    @property
    def running(self) -> list[Running]:
        """By task, those of a task in the order of their starts. So the first one is that which a
        drill kills.
        """
        running = (one for one in list(self._started) if not one.is_ending)
        return sorted(running, key=lambda one: one.task)

    @property
    def tasks(self) -> dict[str, int]:
        """The task of each process that was ever started, by run."""
        return {one.run: one.task for one in list(self._started)}

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run, by run."""
        return {one.run: one.process.pid for one in self.running if one.process.poll() is None}

    def start(self, stop_at: str | None = None) -> str:
        """Start a process for each task that has none, and return the run of the first one.
        `stop_at`: the failpoint at which it stops.
        """
        runs = {one.task for one in self.running}
        started = [self.start_task(task, stop_at) for task in self._tasks if task not in runs]
        return (started or [one.run for one in self.running])[0]

    def start_task(self, task: int = KILLED_TASK, stop_at: str | None = None) -> str:
        """Start a process of the task, also beside another one. Returns its run."""
        number = len(self._started) + 1
        run = f"job-{number}" if len(self._tasks) == 1 else f"task-{task}-run-{number}"
        given = self._arguments(run, task, number)
        env = self._environment(given)
        env.pop(failpoint.VARIABLE, None)
        if stop_at is not None:
            env[failpoint.VARIABLE] = f"{stop_at}@{self.marker(run)}"
        program = SPOUT_PROGRAM if self._setting.spout else SPARK_PROGRAM
        with self.log(run).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", program, msgspec.json.encode(given).decode()],
                stdin=subprocess.PIPE,  # a job ends when this process is gone
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,  # Ctrl-C reaches the drill alone, which ends the job
            )
        self._started.append(Running(run, task, process))
        return run

    def kill(self, name: str = "", task: int = KILLED_TASK) -> Fault:
        """Send kill -9 to the oldest process of the task and to all below it, and wait until they
        are gone.
        """
        one = next((one for one in self.running if one.task == task), None)
        if one is None:
            raise DrillError(f"the drill found no process to kill: {name}")
        began_ns = time.monotonic_ns()
        one.kill()
        name = name or f"kill -9 of {one.run}"
        return Fault(name, began_ns, time.monotonic_ns(), run=one.run)

    def close(self, *tasks: int) -> None:
        """End the processes of these tasks in order, or of all. Raises `DrillError` if one
        fails.
        """
        closing = [one for one in self.running if not tasks or one.task in tasks]
        for one in closing:
            one.is_ending = True
            one.process.send_signal(signal.SIGTERM)
        for one in closing:
            self._wait(one)

    def _wait(self, one: Running) -> None:
        try:
            code = one.process.wait(CLOSING_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise DrillError(
                f"{one.run} did not end within {CLOSING_LIMIT_S:.0f} s of SIGTERM",
                f"see {self.log(one.run).name}",
            ) from None
        finally:
            one.kill()
        is_too_young = code == -signal.SIGTERM and not self.path(one.run).exists()
        if code and not is_too_young:
            raise DrillError(f"{one.run} failed while it stopped: {self.errors(one.run)}")

    def ended(self) -> Iterator[tuple[str, str]]:
        """The runs that ended by themselves, each once, with the last lines of its log."""
        for one in self.running:
            if one.process.poll() is not None:
                one.kill()
                yield one.run, self.errors(one.run)

    def end(self) -> None:
        """Kill all that runs. Idempotent."""
        for one in self._started:
            one.kill()

    # files ----------------------------------------------------------------------------------------
    def path(self, run: str) -> Path:
        """The file of a run's lines. It may not exist yet."""
        return self._directory / f"{run}.told"

    def log(self, run: str) -> Path:
        """The file of all that a run writes to its stdout and stderr."""
        return self._directory / f"{run}.log"

    def marker(self, run: str) -> Path:
        """The file that a process makes when its failpoint has stopped it."""
        return self._directory / f"{run}.stopped"

    def errors(self, run: str, lines: int = 12) -> str:
        """The last lines of a run's log."""
        text = self.log(run).read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    # lines ----------------------------------------------------------------------------------------
    def read(self) -> list[Told]:
        """Read what the files have more than at the last call. Returns all lines, unsorted."""
        for run in self.tasks:
            path = self.path(run)
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read.get(run, 0))
                whole, end, _ = file.read().rpartition(b"\n")
            if end:
                self._read[run] = self._read.get(run, 0) + len(whole) + 1
                told = [parse_line(line, run) for line in whole.split(b"\n")]
                self._told += told
                self.resolved.update(one.record for one in told if one.is_outcome)
        return self._told

    def told(self, puts: Iterable[Put] = ()) -> list[Told]:
        """All lines in the order of their times. `puts`: the keys and numbers of records whose
        payload does not contain them.
        """
        known = {put.record: put for put in puts}
        lines = sorted(self.read(), key=lambda told: told.at_ns)
        for at, told in enumerate(lines):
            if told.number == NO_NUMBER and (put := known.get(told.record)) is not None:
                lines[at] = told._replace(key=put.key, number=put.number)
        return lines

    # how it is started ----------------------------------------------------------------------------
    def _arguments(self, run: str, task: int, number: int) -> JobArguments:
        """A second driver of a Spark job has directories of its own."""
        stream, setting = self._stream, self._setting
        is_second = any(one.task == task for one in self.running)
        apart = "-2" if is_second and not setting.spout else ""
        return JobArguments(
            setting=setting,
            stream=stream.name,
            aws=stream.aws,
            is_local=stream.is_local,
            zookeeper=self._zookeeper,
            session_timeout_s=self._session_timeout_s,
            task=task,
            tasks=len(self._tasks),
            seed=setting.seed + number,  # each start draws other answers
            path=str(self.path(run)),
            out=str(self._directory / f"out{apart}"),
            checkpoint=str(self._directory / f"{CHECKPOINT}{apart}"),
            scratch=str(self._directory / f"{SCRATCH}{apart}"),
            outages=str(self._directory / OUTAGES),
        )

    def _environment(self, given: JobArguments) -> dict[str, str]:
        """Where Kinesis is on this machine, no process may reach another one."""
        env = clean_environment() if self._stream.is_local else dict(os.environ)
        path = module_path(env.get("PYTHONPATH", ""), Path.cwd())
        if Need.CLOCK in self._setting.has:
            env[CLOCK_VARIABLE] = str(_clock_file(self._directory))
            path = os.pathsep.join(filter(None, (str(_CLOCK_MODULES), path)))
        env["PYTHONPATH"] = path
        if not self._setting.spout:
            Path(given.scratch).mkdir(exist_ok=True)
            env[SCRATCH_VARIABLE] = given.scratch
            env["PYSPARK_PYTHON"] = sys.executable
            env["SPARK_LOCAL_IP"] = "127.0.0.1"
            env["JAVA_TOOL_OPTIONS"] = f"{env.get('JAVA_TOOL_OPTIONS', '')} {_QUICK_JVM}".strip()
        return env


def set_clock(directory: Path, ahead_ms: int) -> None:
    """Set the clocks of all processes of the drill ahead by so much; back if it is below 0."""
    file = _clock_file(directory)
    new = file.with_suffix(".new")
    new.write_text(str(ahead_ms))
    new.replace(file)


def _clock_file(directory: Path) -> Path:
    return directory / "job-clock"
