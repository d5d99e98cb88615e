"""The Spark job of a drill: one process, with a JVM and Python workers below it."""

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

from kinesis_spout.drills.history.events import Fault
from kinesis_spout.drills.spark_arguments import SCRATCH_VARIABLE
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.job_clock import add_variables
from kinesis_spout.programs.modules import clean_environment, module_path
from kinesis_spout.programs.processes import kill_family
from state import failpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.drills.spark_arguments import SparkArguments

PROGRAM = "spark_job.commands.drill_job"  # started by name: Spark is above this package
CLOSING_LIMIT_S = 60.0
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for JVMs that live for seconds
_TASK = 0


@dataclass(slots=True)
class _Running:
    run: str
    process: subprocess.Popen[bytes]
    is_ending: bool = False


class SparkJob:
    """A `Job`. `is_local`: its Kinesis is on this machine, and no process may reach another one.
    `variables`: more of the environment, of all its processes.
    """

    def __init__(
        self,
        directory: Path,
        arguments: SparkArguments,
        *,
        is_local: bool,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._arguments = arguments
        self._is_local = is_local
        self._variables = variables or {}
        self._running: list[_Running] = []
        self.tasks: dict[str, int] = {}

    def start(self, stop_at: str | None = None) -> str:
        if self._running:
            return self._running[0].run
        return self._start(stop_at)

    def start_another(self) -> str:
        """Start a second driver, with a directory of its own for Spark's log."""
        return self._start(None, apart="-2")

    def _start(self, stop_at: str | None, *, apart: str = "") -> str:
        run = f"job-{len(self.tasks) + 1}"
        self.tasks[run] = _TASK
        given = msgspec.structs.replace(
            self._arguments,
            path=str(self.path(run)),
            checkpoint=self._arguments.checkpoint + apart,
            out=self._arguments.out + apart,
            scratch=self._arguments.scratch + apart,
        )
        Path(given.scratch).mkdir(exist_ok=True)
        with self.log(run).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, msgspec.json.encode(given).decode()],
                stdin=subprocess.PIPE,  # the job ends when this process is gone
                stdout=log,
                stderr=log,
                env=self._environment(run, stop_at) | {SCRATCH_VARIABLE: given.scratch},
                start_new_session=True,  # Ctrl-C reaches the drill alone, which ends the job
            )
        self._running.append(_Running(run, process))
        return run

    def marker(self, run: str) -> Path:
        return self._directory / f"{run}.stopped"

    def kill(self, name: str) -> Fault:
        """Kills the driver that was started first of those that run."""
        if not self._running:
            raise DrillError(f"no job runs, so there is none to kill ({name})")
        one = self._running.pop(0)
        began_ns = time.monotonic_ns()
        kill_family(one.process)
        self._close_pipe(one)
        return Fault(name, began_ns, time.monotonic_ns(), run=one.run)

    def close(self) -> None:
        closing, self._running = self._running, []
        for one in closing:
            one.process.send_signal(signal.SIGTERM)
        for one in closing:
            try:
                code = one.process.wait(CLOSING_LIMIT_S)
            except subprocess.TimeoutExpired:
                kill_family(one.process)
                raise DrillError(
                    f"{one.run} did not end within {CLOSING_LIMIT_S:.0f} s of its SIGTERM",
                    f"see {self.log(one.run).name}",
                ) from None
            finally:
                self._close_pipe(one)
            if code and not (code == -signal.SIGTERM and not self.path(one.run).exists()):
                raise DrillError(f"{one.run} was ended in order and failed: {self.errors(one.run)}")

    def ended(self) -> list[tuple[str, str]]:
        gone = [one for one in self._running if one.process.poll() is not None]
        self._running = [one for one in self._running if one not in gone]
        for one in gone:
            self._close_pipe(one)
        return [(one.run, self.errors(one.run)) for one in gone]

    def pids(self) -> dict[str, int]:
        return {one.run: one.process.pid for one in list(self._running)}

    def errors(self, run: str, lines: int = 12) -> str:
        text = self.log(run).read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def end(self) -> None:
        for one in self._running:
            kill_family(one.process)
            self._close_pipe(one)
        self._running = []

    def path(self, run: str) -> Path:
        return self._directory / f"{run}.told"

    def log(self, run: str) -> Path:
        return self._directory / f"{run}.log"

    def _close_pipe(self, one: _Running) -> None:
        if one.process.stdin is not None:
            one.process.stdin.close()

    def _environment(self, run: str, stop_at: str | None) -> dict[str, str]:
        env = clean_environment() if self._is_local else dict(os.environ)
        env["PYTHONPATH"] = module_path(env.get("PYTHONPATH", ""), Path.cwd())
        add_variables(env, self._variables)
        env["PYSPARK_PYTHON"] = sys.executable
        env["SPARK_LOCAL_IP"] = "127.0.0.1"
        env["JAVA_TOOL_OPTIONS"] = f"{env.get('JAVA_TOOL_OPTIONS', '')} {_QUICK_JVM}".strip()
        env.pop(failpoint.VARIABLE, None)
        if stop_at is not None:
            env[failpoint.VARIABLE] = f"{stop_at}@{self.marker(run)}"
        return env
