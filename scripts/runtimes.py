"""Finds what is no Python package: Java for Spark and the embedded ZooKeeper, Node for the tests'
Kinesis emulator.
"""

from __future__ import annotations

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
    """A Java runtime: what JAVA_HOME is to be set to, and its feature release (8, 11, 17 ...)."""

    home: Path
    release: int


def find_java(environ: Mapping[str, str], jvm_folder: Path = JVM_FOLDER) -> Java | None:
    """The first Java that is new enough: in JAVA_HOME, in PATH, then where Debian puts them."""
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
    """Ask the runtime itself: the one in PATH may be a wrapper whose folder says nothing."""
    said = _answer([str(executable), "-XshowSettings:properties", "-version"])
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    release = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    return Java(Path(home[1].strip()), int(release[1])) if home and release else None


def find_node(environ: Mapping[str, str]) -> int | None:
    """The major version of the Node in PATH when it is new enough and npm is there too."""
    node = shutil.which("node", path=environ.get("PATH"))
    if node is None or shutil.which("npm", path=environ.get("PATH")) is None:
        return None
    version = re.match(r"v(\d+)\.", _answer([node, "--version"]))
    return int(version[1]) if version and int(version[1]) >= OLDEST_NODE else None


def _answer(command: Sequence[str]) -> str:
    """All that a command prints, or nothing when it is not there, fails or hangs."""
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
