"""Checks of Java and Spark on this machine, without starting Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kinesis_spout.doctor.checkup import Check
from kinesis_spout.doctor.finding import Finding, failed, not_tried, ok, warning
from kinesis_spout.doctor.installation import installed_version
from kinesis_spout.doctor.requirement import numbers_of
from kinesis_spout.programs.installation import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

JAVA, SPARK = "Java", "Spark"
LOWEST_JAVA = 17
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_CORE_JAR = re.compile(r"spark-core_[\d.]+-(.+)\.jar")
_JAVA_LIMIT_S = 8.0
_REINSTALL_SPARK = "run pip install --force-reinstall pyspark"


def java_says(program: str) -> str:
    """What `java -version` prints. Raises OSError or `subprocess.SubprocessError`."""
    done = subprocess.run(
        [program, "-version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_JAVA_LIMIT_S,
        check=True,
    )
    return done.stderr + done.stdout


def pyspark_home() -> Path | None:
    """The folder of the installed package, which has Spark's jars."""
    spec = find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@dataclass(frozen=True, slots=True)
class Runtimes:
    """Java and Spark, as a job on this machine would find them. The fields are seams, for tests."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    java_says: Callable[[str], str] = java_says
    pyspark_version: str | None = field(default_factory=lambda: installed_version("pyspark"))
    pyspark_home: Path | None = field(default_factory=pyspark_home)

    def checks(self) -> list[Check]:
        return [
            Check(name=JAVA, look=self.look_at_java, is_remote=False),
            Check(name=SPARK, look=self.look_at_spark, is_remote=False),
        ]

    def look_at_java(self) -> Iterator[Finding]:
        """Java is needed for Spark, and for an embedded ZooKeeper."""
        if self.pyspark_home is None:
            yield not_tried(JAVA, "PySpark is not installed, and nothing else needs Java")
            return
        home = self.environment.get("JAVA_HOME")
        program = str(Path(home, "bin", "java")) if home else self._on_path()
        named = f"of JAVA_HOME, {home}" if home else "on the PATH"
        advice = f"install Java {LOWEST_JAVA} or newer, and set JAVA_HOME to it"
        if program is None:
            yield failed(JAVA, f"no java is on the PATH, and JAVA_HOME is not set; {advice}")
            return
        try:
            said = self.java_says(program)
        except (OSError, subprocess.SubprocessError) as exc:
            yield failed(JAVA, f"the java {named} does not run ({type(exc).__name__}); {advice}")
            return
        match = _JAVA_VERSION.search(said)
        if match is None:
            yield warning(JAVA, f"the java {named} does not say its version; check it")
        elif int(match[1]) < LOWEST_JAVA:
            yield failed(JAVA, f"the java {named} is version {match[1]}; {advice}")
        else:
            yield ok(JAVA, f"{match[1]} ({program})")

    def look_at_spark(self) -> Iterator[Finding]:
        """PySpark, and the Spark of the JVM that it would start: they must be of one version."""
        if self.pyspark_home is None:
            yield not_tried(
                SPARK,
                "PySpark is not installed; the spout does without, a job needs it: "
                + how_to_install("spark"),
            )
            return
        version = self.pyspark_version or "of an unknown version"
        given = self.environment.get("SPARK_HOME")
        home = Path(given) if given else self.pyspark_home
        named = f"SPARK_HOME, {home}," if given else f"the package's folder, {home},"
        jars = _core_versions(home)
        if not jars:
            yield failed(
                SPARK,
                f"{named} has no jars of Spark; "
                + ("unset SPARK_HOME, or correct it" if given else _REINSTALL_SPARK),
            )
        elif self.pyspark_version and numbers_of(jars[0]) != numbers_of(self.pyspark_version):
            yield failed(
                SPARK,
                f"PySpark is {version}, and the JVM's Spark in {named} is {jars[0]}; "
                + ("unset SPARK_HOME, or " if given else "")
                + f"run pip install pyspark=={jars[0]}",
            )
        else:
            yield ok(SPARK, f"{version}, of PySpark and of the JVM")

    def _on_path(self) -> str | None:
        return shutil.which("java", path=self.environment.get("PATH", ""))


def _core_versions(home: Path) -> list[str]:
    """The version of Spark's core, by the name of its jar."""
    jars = sorted(home.joinpath("jars").glob("spark-core_*.jar"))
    return [match[1] for jar in jars if (match := _CORE_JAR.fullmatch(jar.name))]
