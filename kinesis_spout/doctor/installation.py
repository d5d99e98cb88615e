"""Checks of this process: Python and the packages. They run in executors too."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout import __version__
from kinesis_spout.doctor.checkup import Check
from kinesis_spout.doctor.finding import Finding, failed, ok
from kinesis_spout.doctor.requirement import Requirement, numbers_of, requirements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DISTRIBUTION = "kinesis-spout"
PYTHON, PACKAGES = "Python", "packages"
# Packages with machine code, which may be installed and yet not fit to each other.
_NATIVE = {"pyarrow": "pyarrow", "numpy": "numpy", "msgspec": "msgspec"} | {
    "protobuf": "google.protobuf"
}
_SHOWN = ("boto3", "kazoo", "numpy", "pandas", "protobuf", "pyarrow")
# An extra's packages are checked where the extra is there, that is, where this package is.
_SIGN_OF_EXTRA = {"spark": "pyspark", "cbor": "cbor2", "metrics": "prometheus-client"}


def installed_version(name: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def import_error(module: str) -> str | None:
    """Why a module cannot be imported; None if it can."""
    try:
        importlib.import_module(module)
    except Exception as exc:  # noqa: BLE001  # a broken package may raise anything
        return f"{type(exc).__name__}: {exc}".splitlines()[0]
    return None


def our_requirements() -> list[Requirement]:
    """Those of the installed distribution; empty in a checkout that is not installed."""
    try:
        return requirements(importlib.metadata.requires(DISTRIBUTION) or [])
    except importlib.metadata.PackageNotFoundError:
        return []


def lowest_python() -> str:
    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return ""
    bound = metadata["Requires-Python"] if "Requires-Python" in metadata else ""  # noqa: SIM401  # it has no get
    return bound.removeprefix(">=")


@dataclass(frozen=True, slots=True)
class Installation:
    """Python and packages of this process. The fields are seams, for tests."""

    python: str = field(default_factory=platform.python_version)
    lowest_python: str = field(default_factory=lowest_python)
    required: Sequence[Requirement] = field(default_factory=our_requirements)
    version_of: Callable[[str], str | None] = installed_version
    import_error: Callable[[str], str | None] = import_error

    def checks(self) -> list[Check]:
        return [
            Check(name=PYTHON, look=self.look_at_python, is_remote=False),
            Check(name=PACKAGES, look=self.look_at_packages, limit_s=60, is_remote=False),
        ]

    def look_at_python(self) -> Iterator[Finding]:
        said = f"{self.python} ({sys.executable})"
        if numbers_of(self.python) < numbers_of(self.lowest_python):
            yield failed(
                PYTHON,
                f"{said} is older than {self.lowest_python}; install Python {self.lowest_python} "
                "or newer, and kinesis-spout in it",
            )
        else:
            yield ok(PYTHON, said)

    def look_at_packages(self) -> Iterator[Finding]:
        """One finding for each package that does not do, or one for all."""
        bad = [self._fault(one) for one in self.required if self._is_needed(one)]
        faults = [one for one in bad if one is not None]
        for name, module in {} if faults else _NATIVE.items():
            why = self.import_error(module)
            if why is not None:
                faults.append(
                    failed(
                        PACKAGES,
                        f"{name} is installed and cannot be imported ({why}); run "
                        f"pip install --force-reinstall {name}",
                    )
                )
        yield from faults or [ok(PACKAGES, self._all())]

    def _is_needed(self, one: Requirement) -> bool:
        if one.extra is None:
            return True
        sign = _SIGN_OF_EXTRA.get(one.extra)
        return sign is not None and self.version_of(sign) is not None

    def _fault(self, one: Requirement) -> Finding | None:
        there = self.version_of(one.name)
        if there is not None and one.is_met_by(there):
            return None
        state = "is not installed" if there is None else f"{there} is older than {one.lowest}"
        wanted = f"{one.name}>={one.lowest}" if one.lowest else one.name
        return failed(PACKAGES, f"{one.name} {state}; run pip install '{wanted}'")

    def _all(self) -> str:
        there = {name: self.version_of(name) for name in _SHOWN}
        shown = ", ".join(f"{name} {version}" for name, version in there.items() if version)
        return f"kinesis-spout {__version__} with {shown}"
