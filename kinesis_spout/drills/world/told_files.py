"""What the processes of a job tell, read from their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kinesis_spout.drills.history.events import RecordId, Told, parse_line
from kinesis_spout.drills.teller import NO_NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kinesis_spout.drills.history.events import Put


class Runs(Protocol):
    """The processes of a job."""

    @property
    def tasks(self) -> dict[str, int]:
        """The task of each process that was ever started, by run."""
        ...

    def path(self, run: str) -> Path:
        """The file of a run. It may not exist yet."""
        ...


class ToldFiles:
    """Reads the files of all runs as they grow. For one thread."""

    def __init__(self, processes: Runs) -> None:
        self._processes = processes
        self._read: dict[str, int] = {}
        self._told: list[Told] = []
        self.resolved: set[RecordId] = set()

    def read(self) -> None:
        for run in list(self._processes.tasks):
            path = self._processes.path(run)
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read.get(run, 0))
                text = file.read()
            whole = text.rpartition(b"\n")[0]
            if not whole:
                continue
            self._read[run] = self._read.get(run, 0) + len(whole) + 1
            told = [parse_line(line, run) for line in whole.split(b"\n")]
            self._told += told
            self.resolved.update(one.record for one in told if one.is_outcome)

    @property
    def lines(self) -> int:
        """How many lines were read so far."""
        return len(self._told)

    @property
    def last(self) -> Told | None:
        """The line that was told last; None before the first one."""
        return max(self._told, key=lambda one: one.at_ns, default=None)

    @property
    def last_reason(self) -> str:
        """Why the last record failed that did; empty if none has."""
        return next((one.reason for one in reversed(self._told) if one.reason), "")

    def told(self, puts: Iterable[Put] = ()) -> list[Told]:
        """All lines in the order of their times. `puts`: the keys and numbers of records whose
        payload does not tell them.
        """
        known = {put.record: put for put in puts}
        return sorted(
            (_numbered(told, known.get(told.record)) for told in self._told),
            key=lambda told: told.at_ns,
        )


def _numbered(told: Told, put: Put | None) -> Told:
    if put is None or told.number != NO_NUMBER:
        return told
    return told._replace(key=put.key, number=put.number)
