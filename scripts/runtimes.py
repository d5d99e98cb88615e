"""Finds the runtimes that are not Python packages.

These are Java, for Spark and the embedded ZooKeeper; Rust, for the native decoder; Node, for the
tests' Kinesis emulator; a browser, for the tests of pages; promtool, for the tests of alert rules.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OLDEST_JAVA = 17
OLDEST_NODE = 18
JVM_FOLDER = Path("/usr/lib/jvm")
ANSWER_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its JAVA_HOME, and its feature release (8, 11, 17 ...)."""

    home: Path
    release: int


def find_java(environ: Mapping[str, str], jvm_folder: Path = JVM_FOLDER) -> Java | None:
    """The first Java that is new enough: of JAVA_HOME, of PATH, of Debian's folder."""
    for executable in _java_executables(environ, jvm_folder):
        java = java_of(executable)
        if java is not None and java.release >= OLDEST_JAVA:
            return java
    return None


def _java_executables(environ: Mapping[str, str], jvm_folder: Path) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path is not None:
        yield Path(on_path)
    yield from sorted(jvm_folder.glob("*/bin/java"))


def java_of(executable: Path) -> Java | None:
    """Query the runtime itself, because a command in PATH may be a wrapper in another folder.

    None if it does not answer.
    """
    output = _answer([str(executable), "-XshowSettings:properties", "-version"])
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    release = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", output, re.MULTILINE)
    return Java(Path(home[1].strip()), int(release[1])) if home and release else None


def find_cargo(environ: Mapping[str, str]) -> Path | None:
    """The cargo in PATH, or in the folder where rustup puts it."""
    folders = (environ.get("PATH", ""), str(Path("~/.cargo/bin").expanduser()))
    found = shutil.which("cargo", path=os.pathsep.join(folders))
    return None if found is None else Path(found)


def find_node(environ: Mapping[str, str]) -> int | None:
    """The major version of the Node in PATH, if it is new enough and has npm; else None."""
    node = shutil.which("node", path=environ.get("PATH"))
    if node is None or shutil.which("npm", path=environ.get("PATH")) is None:
        return None
    version = re.match(r"v(\d+)\.", _answer([node, "--version"]))
    return int(version[1]) if version and int(version[1]) >= OLDEST_NODE else None


def find_browser(environ: Mapping[str, str]) -> str | None:
    """The first Chromium, or Chrome, in PATH."""
    return _in_path(("chromium", "chromium-browser", "google-chrome"), environ)


def promtool_folder(root: Path) -> Path:
    """Where the set-up unpacks Debian's package of Prometheus in a checkout."""
    return root / ".tools" / "prometheus"


def find_promtool(environ: Mapping[str, str], root: Path) -> str | None:
    """The promtool of PATH, else the one that the set-up has unpacked in the checkout."""
    unpacked = promtool_folder(root) / "usr" / "bin" / "promtool"
    return _in_path(("promtool",), environ) or (str(unpacked) if unpacked.exists() else None)


def _in_path(names: Sequence[str], environ: Mapping[str, str]) -> str | None:
    paths = (shutil.which(name, path=environ.get("PATH")) for name in names)
    return next((path for path in paths if path is not None), None)


def _answer(command: Sequence[str]) -> str:
    """The output of a command; empty when it does not exist, fails or hangs."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""
