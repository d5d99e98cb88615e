"""Runs `kinesis-spout` as users do: a process of its own, with its exit code, stdout and stderr."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import kinesis_spout
from kinesis_spout.cli.main import COMMAND_GROUP
from tests.support.spark.spark_classes import quick_jvm

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
    path = [
        str(ROOT),
        *(str(folder) for folder in _entry_points()),
        *kept.get("PYTHONPATH", "").split(os.pathsep),
    ]
    plain = {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "AWS_EC2_METADATA_DISABLED": "true",
        "COLUMNS": "120",
    }
    return kept | plain | {"PYTHONWARNINGS": "default", "SPARK_SUBMIT_OPTS": quick_jvm()} | changes


def run_cli(
    *arguments: str, cwd: Path, timeout_s: float = TIME_LIMIT_S, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. stdin is empty, and no stream is a terminal. The note that the
    first answer takes long is left out of stderr: it is a fact of the machine.
    """
    ended = subprocess.run(
        command_line(*arguments),
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    ended.stderr = without_waits(ended.stderr)
    return ended


def without_waits(said: str) -> str:
    """What a command said, without its notes that a service is slow: the machine may be."""
    lines = said.splitlines(keepends=True)
    waits = ("note: no answer yet", "note: answered after")
    return "".join(line for line in lines if not line.startswith(waits))


@cache
def _entry_points() -> tuple[Path, ...]:
    """A folder that declares pyproject's entry points, for checkouts where the project is not
    installed.
    """
    if importlib.metadata.entry_points(group=COMMAND_GROUP):
        return ()
    project = tomllib.loads(
        (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    folder = Path(mkdtemp(prefix="kinesis-spout-entry-points-"))
    info = folder / f"kinesis_spout-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"{name} = {target}" for name, target in project["entry-points"][COMMAND_GROUP].items()
    ]
    (info / "entry_points.txt").write_text("\n".join([f"[{COMMAND_GROUP}]", *lines, ""]))
    return (folder,)
