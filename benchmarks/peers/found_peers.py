"""Builds or fetches what the readers need, once, into one folder. What cannot be had is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HERE = Path(__file__).resolve().parent
AWSLABS_COMMIT = "0f4c005"
AWSLABS_JAR = "spark-streaming-sql-kinesis-connector_*.jar"
ASYNC_KINESIS_PACKAGE = "async-kinesis==3.0.1"


class MissingPeerError(Exception):
    """A peer cannot run. The message says what is missing and how to give it."""


class FoundPeers:
    """Each property is a path to something ready, or raises `MissingPeerError`.

    `home`: where it is built. `awslabs_jar`, `awslabs_source`: of awslabs' connector, if the user
    has either.
    """

    def __init__(self, home: Path, awslabs_jar: Path | None, awslabs_source: Path | None) -> None:
        self._home = home.absolute()
        self._home.mkdir(parents=True, exist_ok=True)
        self._awslabs_jar = awslabs_jar
        self._awslabs_source = awslabs_source
        self.log = self._home / "build.log"

    @property
    def java(self) -> Path:
        return _java_program("java")

    @cached_property
    def server_classpath(self) -> str:
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        classes = self._compile("server", (HERE / "server").glob("*.java"), str(jars))
        return f"{classes}:{jars}"

    @cached_property
    def kcl_classpath(self) -> str:
        jars = self._home / "kcl" / "lib"
        if not jars.exists():
            coming = jars.with_name("coming")
            shutil.rmtree(coming, ignore_errors=True)
            self._maven(
                "KCL",
                HERE / "readers" / "kcl.pom.xml",
                ["dependency:copy-dependencies", f"-DoutputDirectory={coming}"],
            )
            coming.rename(jars)
        source = HERE / "readers" / "KclReader.java"
        classes = self._compile("kcl/classes", [source], f"{jars}/*")
        return f"{classes}:{jars}/*"

    @cached_property
    def awslabs_jar(self) -> Path:
        if self._awslabs_jar is not None:
            if not self._awslabs_jar.is_file():
                raise MissingPeerError(f"awslabs: there is no file {self._awslabs_jar}")
            return self._awslabs_jar.absolute()
        if self._awslabs_source is None:
            raise MissingPeerError(
                "awslabs: no jar; give --awslabs-jar PATH or --awslabs-source DIR (a clone of "
                f"awslabs/spark-sql-kinesis-connector at commit {AWSLABS_COMMIT})"
            )
        source = self._awslabs_source.absolute()
        commit = _commit(source)
        if commit is not None and not commit.startswith(AWSLABS_COMMIT):
            raise MissingPeerError(
                f"awslabs: {source} is at commit {commit[:7]}; check out {AWSLABS_COMMIT}, or give "
                "a jar of it with --awslabs-jar PATH"
            )
        if not list((source / "target").glob(AWSLABS_JAR)):
            self._maven(
                "awslabs",
                source / "pom.xml",
                ["package", "-DskipTests", "-Dscalastyle.skip=true"],
            )
        return next((source / "target").glob(AWSLABS_JAR))

    @cached_property
    def async_kinesis_python(self) -> Path:
        folder = self._home / "async-kinesis"
        python = folder / "bin" / "python"
        if not (folder / "ready").exists():
            self._build("async-kinesis", [sys.executable, "-m", "venv", "--clear", str(folder)])
            self._build(
                "async-kinesis",
                [str(python), "-m", "pip", "install", "--quiet", ASYNC_KINESIS_PACKAGE],
            )
            (folder / "ready").touch()
        return python

    def _compile(self, name: str, sources: Iterable[Path], classpath: str) -> Path:
        """The folder of the classes, compiled again when a source is newer."""
        folder = self._home / name
        sources = sorted(sources)
        done = folder / "ready"
        newest = max(source.stat().st_mtime for source in sources)
        if not done.exists() or done.stat().st_mtime < newest:
            javac = str(_java_program("javac"))
            command = [javac, "--release", "17", "-proc:none", "-cp", classpath, "-d", str(folder)]
            self._build(name, [*command, *map(str, sources)])
            done.touch()
        return folder

    def _maven(self, peer: str, pom: Path, goals: Sequence[str]) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise MissingPeerError(f"{peer}: no mvn in PATH; install Maven (apt install maven)")
        self._build(peer, [maven, "-q", "-B", "-f", str(pom), *goals])

    def _build(self, peer: str, command: Sequence[str]) -> None:
        print(f"{peer}: {' '.join(command)[:150]} ...", file=sys.stderr)
        with self.log.open("a") as log:
            done = subprocess.run(command, stdout=log, stderr=log, check=False)
        if done.returncode:
            raise MissingPeerError(f"{peer}: the build failed; see {self.log}")


def _commit(folder: Path) -> str | None:
    """The commit of a clone; None for a folder that is none."""
    asked = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() if (folder / ".git").exists() and not done.returncode else None


def _java_program(name: str) -> Path:
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", name) if home else Path(shutil.which(name) or name)
    if not found.exists():
        raise MissingPeerError(
            f"{name}: not in JAVA_HOME or PATH; install a JDK of 17 or newer "
            "(apt install openjdk-17-jdk-headless)"
        )
    return found
