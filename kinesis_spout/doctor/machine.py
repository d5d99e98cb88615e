"""What is looked at on this machine: Python, the packages, Java and Spark. Spark is not started."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout import __version__
from kinesis_spout.doctor.findings import Finding, failed, not_tried, ok, warning
from kinesis_spout.programs import DISTRIBUTION, how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PYTHON = "Python"
LOWEST_JAVA = 17
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_CORE_JAR = re.compile(r"spark-core_[\d.]+-(.+)\.jar")
# Packages with machine code, which may be installed and yet not fit to each other.
_NATIVE = ("pyarrow", "numpy", "msgspec", "protobuf")
_SHOWN = ("boto3", "kazoo", "kinesis-spout-native", "numpy", "pandas", "protobuf", "pyarrow")
# An extra's packages are checked where the extra is there, that is, where this package is.
_SIGN_OF_EXTRA = {"spark": "pyspark", "cbor": "cbor2", "metrics": "prometheus-client"}
_REQUIREMENT = re.compile(
    r"""([\w.-]+)(?:[^;]*>=\s*([\w.]+))?[^;]*(?:;.*extra\s*==\s*['"]([^'"]+))?"""
)
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


class Requirement(NamedTuple):
    """`name` in at least version `lowest` ("": any), for an extra or for all (None)."""

    name: str
    lowest: str
    extra: str | None = None


def our_requirements() -> list[Requirement]:
    """Those of the installed distribution, Python's first, without bounds from above. Empty in a
    checkout that is not installed.
    """
    ours = next(iter(importlib.metadata.distributions(name=DISTRIBUTION)), None)
    if ours is None:
        return []
    lines = (f"{PYTHON}{ours.metadata['Requires-Python']}", *(ours.requires or ()))
    found = filter(None, map(_REQUIREMENT.match, lines))
    return [Requirement(match[1], match[2] or "", match[3]) for match in found]


def installed_version(name: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    return next((one.version for one in importlib.metadata.distributions(name=name)), None)


def java_says(program: str) -> str:
    """What `java -version` prints. Raises OSError or `subprocess.SubprocessError`."""
    command = [program, "-version"]
    done = subprocess.run(command, capture_output=True, timeout=8, check=True)
    return (done.stderr + done.stdout).decode(errors="replace")


def pyspark_home() -> Path | None:
    """The folder of the installed package, which has Spark's jars."""
    spec = find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a job would find on this machine. The fields are seams, for tests."""

    python: str = field(default_factory=platform.python_version)
    required: Sequence[Requirement] = field(default_factory=our_requirements)
    version_of: Callable[[str], str | None] = installed_version
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    java_says: Callable[[str], str] = java_says
    pyspark_home: Path | None = field(default_factory=pyspark_home)

    def check_python(self) -> Finding:
        shown = f"{self.python} ({sys.executable})"
        lowest = next((one.lowest for one in self.required if one.name == PYTHON), "")
        if _numbers_of(self.python) >= _numbers_of(lowest):
            return ok(shown)
        remedy = f"install Python {lowest} or newer, and install kinesis-spout in it"
        return failed(f"Python {shown} is older than {lowest}; {remedy}")

    def check_packages(self) -> list[Finding]:
        """One finding for each package that is at fault, or one for all."""
        there = ((name, self.version_of(name)) for name in _SHOWN)
        shown = ", ".join(f"{name} {version}" for name, version in there if version)
        versions = ok(f"kinesis-spout {__version__} with {shown}")
        return list(self._outdated()) or list(_broken()) or [versions]

    def check_java(self) -> Finding:
        """Java is needed for Spark, and for an embedded ZooKeeper."""
        if self.pyspark_home is None:
            return not_tried("not needed: only PySpark needs Java, and PySpark is not installed")
        advice = f"install Java {LOWEST_JAVA} or newer, and set JAVA_HOME to it"
        home = self.environment.get("JAVA_HOME")
        path = self.environment.get("PATH", "")
        program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=path)
        if program is None:
            return failed(f"no java is on the PATH, and JAVA_HOME is not set; {advice}")
        java = f"the java in JAVA_HOME ({home})" if home else "the java on the PATH"
        try:
            version = _JAVA_VERSION.search(self.java_says(program))
        except (OSError, subprocess.SubprocessError) as exc:
            return failed(f"{java} does not run ({type(exc).__name__}); {advice}")
        if version is None:
            return warning(
                f"{java} does not print its version; check that the version is at least "
                f"{LOWEST_JAVA}"
            )
        if int(version[1]) < LOWEST_JAVA:
            return failed(f"{java} is version {version[1]}; {advice}")
        return ok(f"{version[1]} ({program})")

    def check_spark(self) -> Finding:
        """PySpark, and the Spark of the JVM that it would start: they must be of one version."""
        if self.pyspark_home is None:
            why = "PySpark is not installed. Only Spark jobs need PySpark"
            return not_tried(f"{why}; {how_to_install('spark')}")
        version = self.version_of("pyspark")
        given = self.environment.get("SPARK_HOME")
        home = Path(given) if given else self.pyspark_home
        named = f"{'SPARK_HOME' if given else 'the directory of PySpark'} ({home})"
        jars = sorted(home.joinpath("jars").glob("spark-core_*.jar"))
        core = next((match[1] for jar in jars if (match := _CORE_JAR.fullmatch(jar.name))), None)
        if core is None:
            reinstall = "run pip install --force-reinstall pyspark"
            remedy = "unset or correct SPARK_HOME" if given else reinstall
            return failed(f"{named} contains no Spark jars; {remedy}")
        if version and _numbers_of(core) != _numbers_of(version):
            differs = f"PySpark is {version}, but the JVM's Spark in {named} is {core}"
            unset = "unset SPARK_HOME, or " if given else ""
            return failed(f"{differs}; {unset}run pip install pyspark=={core}")
        return ok(f"PySpark and the JVM's Spark are both version {version or core}")

    def _outdated(self) -> Iterator[Finding]:
        for name, lowest, extra in self.required:
            sign = name if extra is None else _SIGN_OF_EXTRA.get(extra)
            if name == PYTHON or sign is None or (extra and self.version_of(sign) is None):
                continue
            there = self.version_of(name)
            remedy = f"run pip install '{name}{lowest and f'>={lowest}'}'"
            if there is None:
                yield failed(f"{name} is not installed; {remedy}")
            elif _numbers_of(there) < _numbers_of(lowest):
                yield failed(f"{name} {there} is older than {lowest}; {remedy}")


def _broken() -> Iterator[Finding]:
    for name in _NATIVE:
        try:
            importlib.import_module("google.protobuf" if name == "protobuf" else name)
        except Exception as exc:  # noqa: BLE001  # a broken package may raise anything
            why = f"{type(exc).__name__}: {exc}".splitlines()[0]
            remedy = f"run pip install --force-reinstall {name}"
            yield failed(f"{name} is installed, but cannot be imported ({why}); {remedy}")


def _numbers_of(version: str) -> tuple[int, ...]:
    """The release's numbers without the zeros at its end: `4.2.0.dev1` is (4, 2)."""
    release = _RELEASE.match(version)
    numbers = [int(number) for number in release[0].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
