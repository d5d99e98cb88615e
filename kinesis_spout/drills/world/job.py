"""The job of a drill: processes that read the stream, of Spark or of the standalone spout, and the
lines in which they report what they do.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.drills.history.events import Fault, RecordId, Told, parse_line
from kinesis_spout.drills.teller import NO_NUMBER
from kinesis_spout.processes import kill_family
from state import failpoint
from state.errors import RemediedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kinesis_spout.drills.history.events import Put

CLOSING_LIMIT_S = 60.0
KILLED_TASK = 0  # a drill kills, freezes and replaces its process


class DrillError(RemediedError):
    """A drill could not be done. The message is a sentence."""


class Start(NamedTuple):
    """A process to start. `number`: counts all starts of the job. `is_second`: another process of
    the same task runs.
    """

    task: int
    number: int
    path: Path
    is_second: bool


@dataclass(slots=True)
class Running:
    """A process that was started. `is_ending`: it was killed or asked to end, or its end was
    reported.
    """

    run: str
    task: int
    process: subprocess.Popen[bytes]
    is_ending: bool = False


class Job:
    """Starts, closes and kills one process for each task. `command`: Python's arguments and the
    environment of a process. One thread at a time may do so for a task; `read` and what it has read
    are for one thread.
    """

    def __init__(
        self,
        directory: Path,
        command: Callable[[Start], tuple[list[str], dict[str, str]]],
        *,
        tasks: int = 1,
    ) -> None:
        self._directory = directory
        self._command = command
        self._tasks = range(tasks)
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
        is_single = len(self._tasks) == 1
        run = f"job-{number}" if is_single else f"task-{task}-run-{number}"
        is_second = any(one.task == task for one in self.running)
        arguments, env = self._command(Start(task, number, self.path(run), is_second))
        env.pop(failpoint.VARIABLE, None)
        if stop_at is not None:
            env[failpoint.VARIABLE] = f"{stop_at}@{self.marker(run)}"
        with self.log(run).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
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
            raise DrillError(f"no process is running that could be killed: {name}")
        one.is_ending = True
        began_ns = time.monotonic_ns()
        kill_family(one.process)
        _close_pipe(one)
        name = name or f"kill -9 of {one.run}"
        return Fault(name, began_ns, time.monotonic_ns(), run=one.run)

    def close(self, *tasks: int) -> list[float]:
        """End the processes of these tasks in order, or of all. Returns the seconds that each took.
        Raises `DrillError` if one fails.
        """
        closing = [one for one in self.running if not tasks or one.task in tasks]
        began_s = time.monotonic()
        for one in closing:
            one.is_ending = True
            one.process.send_signal(signal.SIGTERM)
        return [self._wait(one) - began_s for one in closing]

    def _wait(self, one: Running) -> float:
        try:
            code = one.process.wait(CLOSING_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise DrillError(
                f"{one.run} did not end within {CLOSING_LIMIT_S:.0f} s of its SIGTERM",
                f"see {self.log(one.run).name}",
            ) from None
        finally:
            kill_family(one.process)
            _close_pipe(one)
        is_too_young = code == -signal.SIGTERM and not self.path(one.run).exists()
        if code and not is_too_young:
            raise DrillError(f"{one.run} failed when it was closed: {self.errors(one.run)}")
        return time.monotonic()

    def ended(self) -> Iterator[tuple[str, str]]:
        """The runs that ended by themselves, each once, with the last lines of its log."""
        for one in self.running:
            if one.process.poll() is not None:
                one.is_ending = True
                _close_pipe(one)
                yield one.run, self.errors(one.run)

    def end(self) -> None:
        """Kill all that runs. Idempotent."""
        for one in self._started:
            kill_family(one.process)
            _close_pipe(one)
            one.is_ending = True

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
            if not end:
                continue
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
        return sorted(
            (_numbered(told, known.get(told.record)) for told in self.read()),
            key=lambda told: told.at_ns,
        )


def _close_pipe(one: Running) -> None:
    if one.process.stdin is not None:
        one.process.stdin.close()


def _numbered(told: Told, put: Put | None) -> Told:
    if put is None or told.number != NO_NUMBER:
        return told
    return told._replace(key=put.key, number=put.number)
