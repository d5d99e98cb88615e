"""Keeps Spark's noise off the screen: the process's stderr (and stdout) go to a log file, ours keep
the screen.

The JVM and the Python workers inherit file descriptors, so they are redirected there and not in
`sys`; it must happen before the JVM starts.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from kinesis_spout.cli.errors import CliError

STDOUT = 1
STDERR = 2


@dataclass(frozen=True, slots=True)
class Screen:
    """Where our own output goes while everybody else's goes to the log."""

    stdout: IO[str]
    stderr: IO[str]


@contextmanager
def quiet(log_file: Path, *, keep_stdout: bool = False) -> Iterator[Screen]:
    """Inside, whatever this process and its children write to stderr goes to `log_file`, and stdout
    too unless it is kept.

    Appends to the file and creates its folder. Not for use from several threads: descriptors are
    the process's. Raises `CliError` when the file cannot be written.
    """
    redirected = (STDERR,) if keep_stdout else (STDERR, STDOUT)
    with ExitStack() as stack:
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            log = stack.enter_context(log_file.open("ab", buffering=0))
        except OSError as exc:
            raise CliError(
                f"the log file {log_file} cannot be written: {exc.strerror}; give another with "
                "--log-file"
            ) from exc
        _flush()
        screen = Screen(
            stdout=stack.enter_context(_copy_of(STDOUT)),
            stderr=stack.enter_context(_copy_of(STDERR)),
        )
        for descriptor in redirected:
            stack.callback(_restore, descriptor, os.dup(descriptor))
            os.dup2(log.fileno(), descriptor)
        yield screen


def _copy_of(descriptor: int) -> IO[str]:
    return os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="replace")


def _restore(descriptor: int, saved: int) -> None:
    _flush()
    os.dup2(saved, descriptor)
    os.close(saved)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
