"""What every step of the set-up shares: one line to say what it does, one sentence when it fails,
the rest in a log file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MAX_QUOTED_CHARS = 300
NO_ANSWER = (
    "(from versions: none)"  # pip's last words are the same for no network and for no such version
)


class SetUpError(Exception):
    """One sentence: what is wrong and what to do about it."""


def say(line: str) -> None:
    """Print one line, at once."""
    sys.stdout.write(f"set-up: {line}\n")
    sys.stdout.flush()


def run_logged(
    command: Sequence[str], *, what: str, log: Path, env: Mapping[str, str] | None = None
) -> None:
    """Run a command with its output appended to the log; when it fails, raise with the line of it
    that says why.
    """
    with log.open("ab") as out:
        out.write(f"$ {' '.join(command)}\n".encode())
        out.flush()
        start = out.tell()
        environ = {**os.environ, **(env or {})}
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
            env=environ,
        )
    if done.returncode != 0:
        written = log.read_bytes()[start:].decode(errors="replace")
        raise SetUpError(
            f"{what} failed: {reason_in(written)} (all of its output is in {log.name})"
        )


def reason_in(output: str) -> str:
    """The last line that calls itself an error, else the last one that is not empty."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "E:", "error:", "Error:"))]
    reason = (errors or lines or ["it said nothing"])[-1][:MAX_QUOTED_CHARS]
    if NO_ANSWER in output:
        reason += "; the package index did not answer, check the network and pip's settings"
    return reason
