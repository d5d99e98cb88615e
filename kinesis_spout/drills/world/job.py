"""The job of a drill: processes that read the stream, of Spark or of the standalone spout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kinesis_spout.drills.world.told_files import Runs
from state.errors import RemediedError

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_spout.drills.history.events import Fault


class Job(Runs, Protocol):
    """Processes that are started, killed, ended in order. For one thread."""

    def start(self, stop_at: str | None = None) -> str:
        """Start the processes that do not run, and return the run of the first of them. `stop_at`:
        a failpoint at which that process stops.
        """
        ...

    def start_another(self) -> str:
        """Start a second process for what the first one does, while that runs. Returns its run."""
        ...

    def marker(self, run: str) -> Path:
        """The file that a process makes when its failpoint has stopped it."""
        ...

    def kill(self, name: str) -> Fault:
        """Send kill -9 to one process that reads, and to all below it. Wait until they are gone."""
        ...

    def close(self) -> None:
        """End all in order. Raises `DrillError` if one fails to."""
        ...

    def ended(self) -> list[tuple[str, str]]:
        """Runs that ended although nobody told them to, each with its last words. Each is reported
        once.
        """
        ...

    def pids(self) -> dict[str, int]:
        """The processes that run, by run."""
        ...

    def log(self, run: str) -> Path:
        """The file with all that a run writes to its stderr."""
        ...

    def errors(self, run: str) -> str:
        """The last lines of a run's log."""
        ...

    def end(self) -> None:
        """Kill what runs. Idempotent."""
        ...


class DrillError(RemediedError):
    """A drill could not be done. The message is a sentence."""
