"""Common parts of the set-up's steps.

A step prints one line when it starts, and one sentence when it fails. Its output goes to a log
file.
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
# pip's last line is the same for a network failure and for a version that does not exist.
NO_ANSWER = "(from versions: none)"


class SetUpError(Exception):
    """One sentence: what is wrong and what to do about it."""


def say(line: str) -> None:
    """Print one line, without buffering."""
    sys.stdout.write(f"set-up: {line}\n")
    sys.stdout.flush()


def run_logged(
    command: Sequence[str], *, what: str, log: Path, env: Mapping[str, str] | None = None
) -> None:
    """Run a command and append its output to the log.

    When it fails, raises `SetUpError` with the line of its output that has the reason.
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
    """The last line that is marked as an error, else the last one that is not empty."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "E:", "error:", "Error:"))]
    reason = (errors or lines or ["it printed nothing"])[-1][:MAX_QUOTED_CHARS]
    if NO_ANSWER in output:
        reason += "; the package index did not answer, check the network and pip's settings"
    return reason
