"""Keeps Spark's noise off the screen: the process's stderr (and stdout) go to a log file, ours keep
the screen.

The JVM and the Python workers inherit file descriptors, so they are redirected there and not in
`sys`; it must happen before the JVM starts.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kinesis_spout.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator

OUR_FOLDER = Path(__file__).resolve().parents[2]
STDOUT = 1
STDERR = 2


def clean_environment() -> dict[str, str]:
    """The environment without anything that could lead to a real AWS account, our packages
    importable.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    kept["AWS_EC2_METADATA_DISABLED"] = "true"
    kept["PYTHONPATH"] = module_path(kept.get("PYTHONPATH", ""))
    return kept


def module_path(before: str, *folders: Path) -> str:
    """A PYTHONPATH on which a child finds `folders` and our packages, too when they are run from a
    checkout.

    An installed package is found anyway, and its folder must not be named: it would come before the
    standard library.
    """
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    added = [str(folder) for folder in (*folders, OUR_FOLDER) if folder.resolve() not in installed]
    given = [path for path in before.split(os.pathsep) if path]
    return os.pathsep.join([*given, *(path for path in added if path not in given)])


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
