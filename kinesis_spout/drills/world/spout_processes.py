"""The spouts of a soak: real processes that share one stream, each with a file for its lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.drills import spout_program as program
from kinesis_spout.drills.history.events import Fault
from kinesis_spout.drills.world.job_clock import add_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CLOSING_LIMIT_S = 60.0


@dataclass(slots=True)
class Running:
    """A process. `is_ending`: it was told to end, or killed."""

    run: str
    task: int
    process: subprocess.Popen[bytes]
    is_ending: bool = False


class SpoutProcesses:
    """Starts, closes and kills the tasks' processes. One thread at a time may do so for a task."""

    def __init__(
        self,
        directory: Path,
        *,
        endpoint: str | None,
        zookeeper: str,
        tasks: int,
        seed: int,
        variables: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """`variables`: more of the environment. `more`: the other fields of `program.Given`."""
        self._directory = directory
        self._variables = variables or {}
        self._given = program.Given(
            endpoint=endpoint, zookeeper=zookeeper, path="", task=0, tasks=tasks, seed=seed, **more
        )
        self._lock = threading.Lock()
        self._runs = 0
        self.tasks: dict[str, int] = {}
        self.running: dict[int, Running] = {}

    def start(self, task: int) -> Running:
        with self._lock:
            self._runs += 1
            run = f"task-{task}-run-{self._runs}"
            self.tasks[run] = task
        given = msgspec.structs.replace(
            self._given, path=str(self.path(run)), task=task, seed=self._given.seed + self._runs
        )
        arguments = ["-m", program.__name__, msgspec.json.encode(given).decode()]
        with self.log(run).open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stderr=errors,
                env=add_variables(dict(os.environ), self._variables),
            )
        self.running[task] = Running(run, task, process)
        return self.running[task]

    def kill(self, task: int, *, one: Running | None = None) -> Fault:
        """SIGKILL; returns when the process is gone. `one`: an earlier process of the task, which
        still runs.
        """
        one = one or self.running[task]
        one.is_ending = True
        began_ns = time.monotonic_ns()
        one.process.kill()
        one.process.wait()
        ended_ns = time.monotonic_ns()
        return Fault(f"kill -9 of {one.run}", began_ns, ended_ns, run=one.run)

    def close(self, tasks: Iterable[int]) -> list[float]:
        """SIGTERM to all of them. Returns the seconds that each took. Raises what `ended` finds."""
        closing = [self.running[task] for task in tasks]
        began_s = time.monotonic()
        for one in closing:
            one.is_ending = True
            one.process.send_signal(signal.SIGTERM)
        took_s = []
        for one in closing:
            code = one.process.wait(CLOSING_LIMIT_S)
            took_s.append(time.monotonic() - began_s)
            is_too_young = code == -signal.SIGTERM and not self.path(one.run).exists()
            if code and not is_too_young:
                raise AssertionError(f"{one.run} was closed with {code}:\n{self.errors(one.run)}")
        return took_s

    def ended(self) -> list[str]:
        """Those that ended though nobody told them to, with their last words."""
        return [
            f"{one.run} ended by itself with {one.process.poll()}:\n{self.errors(one.run)}"
            for one in list(self.running.values())
            if one.process.poll() is not None and not one.is_ending
        ]

    def end(self) -> None:
        """Kill what runs."""
        for one in self.running.values():
            one.process.kill()
            one.process.wait()

    def path(self, run: str) -> Path:
        return self._directory / f"{run}.told"

    def log(self, run: str) -> Path:
        return self._directory / f"{run}.err"

    def errors(self, run: str, lines: int = 12) -> str:
        text = self.log(run).read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])
