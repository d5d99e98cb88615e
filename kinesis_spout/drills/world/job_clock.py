"""The clock of a job's processes, which a drill can set: `wrong_clock` is in their environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "KINESIS_SPOUT_DRILL_CLOCK"
PATH = "PYTHONPATH"
_MODULES = Path(__file__).parent / "wrong_clock"  # Python imports what is in it at its start


class JobClock:
    """Says to processes in a file by how much their clock is wrong. For one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def variables(self) -> dict[str, str]:
        """What a process whose clock can be set has in its environment."""
        return {VARIABLE: str(self._path), PATH: str(_MODULES)}

    def set(self, ahead_ms: int) -> None:
        """Let the clocks of all its processes be ahead by so much; behind if it is below 0."""
        new = self._path.with_suffix(".new")
        new.write_text(str(ahead_ms))
        new.replace(self._path)


def add_variables(env: dict[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Put them into `env`, in front of a path that it has. Returns `env`."""
    for name, value in more.items():
        env[name] = os.pathsep.join(filter(None, (value, env.get(name)))) if name == PATH else value
    return env
