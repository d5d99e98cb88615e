"""What is checked from Spark's executors. The Spark job is a process of its own, started by name,
as Spark is above this package.
"""

from __future__ import annotations

import atexit
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from platform import python_version
from subprocess import PIPE, Popen, TimeoutExpired
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout import __version__
from kinesis_spout.doctor.findings import Finding, Verdict, failed, ok
from kinesis_spout.doctor.target import Target  # noqa: TC001  # msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAM = "spark_job.commands.doctor_job"
LIMIT_S = 300.0  # a cluster may take minutes to give it executors
PYTHON, PACKAGE = "Python", "kinesis-spout"


class SeenExecutor(msgspec.Struct, frozen=True, kw_only=True):
    """What the job sees from one executor. `worker`: the process that starts its Python workers.
    `error`: why our package cannot be imported there.
    """

    host: str
    worker: int
    python: str
    version: str | None = None
    error: str | None = None
    findings: tuple[Finding, ...] = ()


# What the job leaves: what each executor has seen, or why none has.
Answer = tuple[SeenExecutor, ...] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Starts Spark on a master, and looks at the target from its executors. The job gets it as JSON
    on stdin: it holds secrets, so it is in no argument and no file.
    """

    target: Target
    master: str
    conf: dict[str, str] = field(repr=False)

    def check_executors(self) -> Finding | Iterator[Finding]:
        with tempfile.TemporaryDirectory(prefix="kinesis-spout-doctor-") as folder:
            file, log = Path(folder, "answer.json"), Path(folder, "spark.log")
            command = [sys.executable, "-m", PROGRAM, str(file)]
            with (
                log.open("wb") as log_file,
                Popen(
                    command, stdin=PIPE, stdout=log_file, stderr=log_file, start_new_session=True
                ) as job,
            ):
                # Its JVM ends with it. Ctrl-C reaches only this process, whose thread here is lost.
                atexit.register(job.kill)
                try:
                    job.communicate(msgspec.json.encode(self), timeout=LIMIT_S)
                except TimeoutExpired:
                    job.kill()
                    late = f"no executor of {self.master} has answered within {LIMIT_S:g} s"
                    room = "check that the cluster has room for an executor"
                    reach = "that executors can reach this machine"
                    return failed(f"{late}; {room}, and {reach}", unreachable=True)
            if not file.is_file():
                lines = filter(None, map(str.strip, log.read_text(errors="replace").split("\n")))
                last = ["no output", *lines][-1][:200]
                return failed(f"the job that checks the executors ended early: {last}")
            seen: Answer = msgspec.json.decode(file.read_bytes(), type=Answer)
        if isinstance(seen, str):
            return failed(seen)
        return executor_findings(seen, python=python_version(), version=__version__)


def executor_findings(
    seen: Sequence[SeenExecutor], *, python: str, version: str
) -> Iterator[Finding]:
    """The same finding of several executors is one line. `python`, `version`: of this process."""
    minor = python.split(".")[:2]
    others = [one for one in seen if one.python.split(".")[:2] != minor]
    if others:
        differs = f"{_hosts(others)} has Python {others[0].python}, but this process has {python}"
        advice = "set PYSPARK_PYTHON to a Python of the same minor version"
        yield failed(f"{differs}; {advice}", PYTHON)
    else:
        count = len({(one.host, one.worker) for one in seen})
        executors = "1 executor" if count == 1 else f"{count} executors"
        found = ", ".join(sorted({one.python for one in seen}))
        yield ok(f"{found} on {executors}, on {_hosts(seen)}", PYTHON)
    without = [one for one in seen if one.error is not None]
    if without:
        cannot = f"kinesis-spout cannot be imported on {_hosts(without)} ({without[0].error})"
        install = "install it in the Python of the executors"
        ship = "ship an environment that contains it (spark.archives)"
        yield failed(f"{cannot}; {install}, or {ship}", PACKAGE)
    others = [one for one in seen if one.error is None and one.version != version]
    if others:
        differs = (
            f"kinesis-spout has version {others[0].version} on {_hosts(others)}, but {version} here"
        )
        yield failed(f"{differs}; install the same version everywhere", PACKAGE)
    elif not without:
        yield ok(f"{version}, as here", PACKAGE)
    yield from _merged(seen)


def _merged(seen: Sequence[SeenExecutor]) -> Iterator[Finding]:
    """A line for each thing: what is wrong anywhere, or that it is right everywhere."""
    seen_by: dict[Finding, list[SeenExecutor]] = {}
    for one in seen:
        for finding in one.findings:
            seen_by.setdefault(finding, []).append(one)
    for about in dict.fromkeys(finding.about for finding in seen_by):
        if about == PYTHON:
            continue  # compared with the driver's, above
        here = [finding for finding in seen_by if finding.about == about]
        bad = [finding for finding in here if finding.verdict is not Verdict.OK]
        for finding in bad or here[:1]:
            hosts = f"on {_hosts(seen_by[finding])}: " if bad else ""
            yield replace(finding, sentence=f"{hosts}{finding.sentence}")


def _hosts(seen: Sequence[SeenExecutor]) -> str:
    hosts = sorted({one.host for one in seen})
    more = len(hosts) - 3
    return ", ".join(hosts[:3]) + (f" and {more} more" if more > 0 else "")
