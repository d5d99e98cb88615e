"""Runs `kinesis-spout` as users do, with its exit code, stdout and stderr: in a process of its own,
or within this one, which takes a tenth of the time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

import kinesis_spout
from kinesis_spout.cli import entry
from kinesis_spout.processes import kill_family
from tests.support.spark.spark_classes import quick_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(kinesis_spout.__file__).parent.parent
TIME_LIMIT_S = 300.0
# Variables that make Python take the characters of its arguments and its output for ASCII.
ASCII_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kinesis_spout.cli.entry", *arguments]


def environment(**changes: str) -> dict[str, str]:
    """The environment in which the command runs from the checkout, without the machine's AWS
    configuration.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    path = [str(ROOT), *kept.get("PYTHONPATH", "").split(os.pathsep)]
    plain = {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "AWS_EC2_METADATA_DISABLED": "true",
        "COLUMNS": "120",
    }
    return kept | plain | {"PYTHONWARNINGS": "default", "SPARK_SUBMIT_OPTS": quick_jvm()} | changes


def hide(module: str, folder: Path) -> None:
    """Let Python not find an installed module, as if it were not installed."""
    (folder / "sitecustomize.py").write_text(
        "import importlib.machinery as machinery\n"
        "found = machinery.PathFinder.find_spec\n"
        "def find_spec(name, *rest):\n"
        f"    return None if name.partition('.')[0] == {module!r} else found(name, *rest)\n"
        "machinery.PathFinder.find_spec = find_spec\n"
    )


def path_with(folder: Path) -> str:
    """PYTHONPATH with `folder` first."""
    return os.pathsep.join([str(folder), environment()["PYTHONPATH"]])


def run_cli(
    *arguments: str, cwd: Path, stdin: bytes = b"", timeout_s: float = TIME_LIMIT_S, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. No stream is a terminal. The note that the first answer takes
    long is left out of stderr: it is a fact of the machine.
    """
    ended = subprocess.run(
        command_line(*arguments),
        cwd=cwd,
        env=environment(**env),
        input=stdin,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    return _completed(ended.returncode, ended.stdout, ended.stderr)


@contextmanager
def running_cli(
    *arguments: str, cwd: Path | None = None, variables: dict[str, str] | None = None, **pipes: Any
) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own. It is killed at the end if it still runs, with all that
    it has started. `variables`: of its environment.
    """
    with subprocess.Popen(
        command_line(*arguments), cwd=cwd, env=environment(**(variables or {})), text=True, **pipes
    ) as process:
        try:
            yield process
        finally:
            kill_family(process)


def call_cli(
    *arguments: str, cwd: Path, stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[str]:
    """The same, within this process. Not where the process is what matters: its signals, its pipes,
    its locale, its imports, its death.
    """
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as said:
        given.write(stdin)
        given.seek(0)
        with chdir(cwd), _variables(environment(**env)), _streams(given, out, said):
            code = _ended(arguments)
        out.seek(0)
        said.seek(0)
        return _completed(code, out.read(), said.read())


def _completed(code: int, out: bytes, said: bytes) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(
        "kinesis-spout", code, out.decode(), without_waits(said.decode())
    )


def _ended(arguments: tuple[str, ...]) -> int:
    argv, handler = sys.argv, signal.getsignal(signal.SIGINT)
    sys.argv = ["kinesis-spout", *arguments]
    try:
        entry.main()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 0
    finally:
        sys.argv = argv
        signal.signal(signal.SIGINT, handler)  # wrong usage ends before a command handles it
    return 0


@contextmanager
def _variables(wanted: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    _replace_variables(wanted)
    try:
        yield
    finally:
        _replace_variables(before)


def _replace_variables(wanted: dict[str, str]) -> None:
    """At no moment is there less than what both have: other threads may look."""
    os.environ.update(wanted)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]


@contextmanager
def _streams(*files: IO[bytes]) -> Iterator[None]:
    """The files in place of stdin, stdout and stderr: for Python, and for programs that are
    started.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        with (
            open(0, encoding="utf-8", closefd=False) as sys.stdin,
            open(1, "w", encoding="utf-8", closefd=False) as sys.stdout,
            open(2, "w", encoding="utf-8", closefd=False) as sys.stderr,
        ):
            yield
    finally:
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)
        sys.stdin, sys.stdout, sys.stderr = before


def without_waits(said: str) -> str:
    """What a command said, without its notes that a service is slow: the machine may be."""
    lines = said.splitlines(keepends=True)
    waits = ("note: still waiting", "note: the wait ended")
    return "".join(line for line in lines if not line.startswith(waits))
