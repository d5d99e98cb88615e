"""What is said of executors, by what each of them has seen (`executor_probe`). Pure."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from kinesis_spout import __version__
from kinesis_spout.doctor.finding import Finding, Verdict, failed, ok

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PYTHON, PACKAGE = "Python", "kinesis-spout"
_INSTALL = (
    "install it in the Python of the executors, or ship an environment that has it (spark.archives)"
)


def executor_findings(
    seen: Sequence[Mapping[str, Any]],
    *,
    python: str | None = None,
    version: str = __version__,
) -> list[Finding]:
    """The same finding of several executors is one line. `python`, `version`: of this process."""
    return [
        *_python(seen, python or platform.python_version()),
        *_package(seen, version),
        *_merged(seen),
    ]


def _python(seen: Sequence[Mapping[str, Any]], python: str) -> Iterator[Finding]:
    minor = python.split(".")[:2]
    for host, found in sorted({(one["host"], one["python"]) for one in seen}):
        if found.split(".")[:2] != minor:
            yield failed(
                PYTHON,
                f"{host} has Python {found}, and this process {python}; set PYSPARK_PYTHON to one "
                "of the same minor version",
            )
            return
    yield ok(PYTHON, f"{', '.join(sorted({one['python'] for one in seen}))} on {_executors(seen)}")


def _package(seen: Sequence[Mapping[str, Any]], version: str) -> Iterator[Finding]:
    without = [one for one in seen if one["error"] is not None]
    others = [one for one in seen if one["error"] is None and one["version"] != version]
    if without:
        yield failed(
            PACKAGE,
            f"it cannot be imported on {_hosts(without)} ({without[0]['error']}); {_INSTALL}",
        )
    if others:
        yield failed(
            PACKAGE,
            f"it has version {others[0]['version']} on {_hosts(others)}, and here {version}; "
            "install the same version everywhere",
        )
    if not without and not others:
        yield ok(PACKAGE, f"{version}, as here")


def _merged(seen: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """A line for each thing: what is wrong anywhere, or that it is right everywhere."""
    of_all = [(one, Finding.of_json(found)) for one in seen for found in one["findings"]]
    for about in dict.fromkeys(found.about for _, found in of_all):
        if about == PYTHON:
            continue  # compared with the driver's, above
        here = [(one, found) for one, found in of_all if found.about == about]
        bad = [(one, found) for one, found in here if found.verdict is not Verdict.OK]
        if not bad:
            yield ok(about, here[0][1].sentence)
        for verdict, sentence in dict.fromkeys((each.verdict, each.sentence) for _, each in bad):
            same = [pair for pair in bad if pair[1].sentence == sentence]
            hosts = _hosts([one for one, _ in same])
            yield Finding(about, verdict, f"on {hosts}: {sentence}", same[0][1].unreachable)


def _hosts(seen: Sequence[Mapping[str, Any]]) -> str:
    hosts = sorted({one["host"] for one in seen})
    more = len(hosts) - 3
    return ", ".join(hosts[:3]) + (f" and {more} more" if more > 0 else "")


def _executors(seen: Sequence[Mapping[str, Any]]) -> str:
    count = len({(one["host"], one["worker"]) for one in seen})
    return f"{'1 executor' if count == 1 else f'{count} executors'}, on {_hosts(seen)}"
