"""The standalone spout as the job of a drill: two processes that share the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.spout_processes import Running, SpoutProcesses

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kinesis_spout.drills.history.events import Fault
    from kinesis_spout.drills.world.kinesis import DrillStream

TASKS = 2
_KILLED = 0  # the task whose process is killed


class SpoutJob:
    """A `Job`. Its first task is the one that is killed. `variables`: more of the environment."""

    def __init__(
        self,
        directory: Path,
        stream: DrillStream,
        zookeeper: str,
        *,
        seed: int,
        variables: Mapping[str, str] | None = None,
        is_poisoned: bool = False,
        efo: bool = False,
    ) -> None:
        self._directory = directory
        self._processes = SpoutProcesses(
            directory,
            endpoint=stream.aws.endpoint_url,
            zookeeper=zookeeper,
            tasks=TASKS,
            seed=seed,
            stream=stream.name,
            region=stream.aws.region,
            is_local=stream.is_local,
            variables=variables,
            is_poisoned=is_poisoned,
            efo=efo,
        )
        self._first: Running | None = None  # of a task for which two processes run

    @property
    def tasks(self) -> dict[str, int]:
        return self._processes.tasks

    def start(self, stop_at: str | None = None) -> str:
        if stop_at is not None:
            raise DrillError(f"the spout has no failpoint {stop_at}", "leave --spout out")
        running = self._processes.running
        missing = [
            task
            for task in range(TASKS)
            if task not in running or running[task].process.poll() is not None
        ]
        runs = [self._processes.start(task).run for task in missing]
        return (runs or [running[_KILLED].run])[0]

    def start_another(self) -> str:
        """The successor of the process that `kill` ends: it waits for the lease of its task."""
        self._first = self._processes.running[_KILLED]
        return self._processes.start(_KILLED).run

    def marker(self, run: str) -> Path:
        return self._directory / f"{run}.stopped"

    def kill(self, name: str) -> Fault:
        first, self._first = self._first, None
        return self._processes.kill(_KILLED, one=first)._replace(name=name)

    def close(self) -> None:
        try:
            self._processes.close(range(TASKS))
        except AssertionError as exc:
            raise DrillError(str(exc)) from exc

    def ended(self) -> list[tuple[str, str]]:
        gone = [
            one
            for one in self._processes.running.values()
            if not one.is_ending and one.process.poll() is not None
        ]
        for one in gone:
            one.is_ending = True
        return [(one.run, self.errors(one.run)) for one in gone]

    def pids(self) -> dict[str, int]:
        return {
            one.run: one.process.pid
            for one in list(self._processes.running.values())
            if one.process.poll() is None
        }

    def errors(self, run: str) -> str:
        return self._processes.errors(run)

    def end(self) -> None:
        if self._first is not None:
            self._first.process.kill()
            self._first.process.wait()
        self._processes.end()

    def path(self, run: str) -> Path:
        return self._processes.path(run)

    def log(self, run: str) -> Path:
        return self._processes.log(run)
