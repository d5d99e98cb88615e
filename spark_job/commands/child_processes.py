"""Stdout and stderr of a command and its child processes.

Imports no pyspark, so the demo's command starts fast.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from kinesis_spout.cli.exit_codes import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STDOUT = 1
STDERR = 2


@dataclass(frozen=True, slots=True)
class Screen:
    """The streams for our own output, while all other output goes to the log."""

    stdout: IO[str]
    stderr: IO[str]


@contextmanager
def quiet(log_file: Path, *, keep_stdout: bool = False) -> Iterator[Screen]:
    """Redirect the stderr of this process and its children to `log_file`, and stdout unless it is
    kept.

    Spark's JVM and Python workers inherit file descriptors, so these are redirected and not
    `sys.stderr`. The block must begin before the JVM starts.

    Appends to the file and creates its folder. Not thread-safe: the descriptors belong to the
    process. Raises `CliError` when the file cannot be written.
    """
    redirected = (STDERR,) if keep_stdout else (STDERR, STDOUT)
    with ExitStack() as stack:
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            log = stack.enter_context(log_file.open("ab", buffering=0))
        except OSError as exc:
            raise CliError(
                f"the log file {log_file} cannot be written ({exc.strerror}); give another with "
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
