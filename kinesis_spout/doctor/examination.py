"""What is examined, area by area: the tables of checks, in their order. Spark's executors are
examined by a process of its own, which is started by name, as Spark is above this package.
"""

from __future__ import annotations

import atexit
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from platform import python_version
from subprocess import PIPE, Popen, TimeoutExpired
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kinesis_spout import __version__
from kinesis_spout.doctor.findings import (
    Check,
    Finding,
    Target,
    Verdict,
    failed,
    ok,
    run,
    warning,
)
from kinesis_spout.doctor.kinesis import Stream, tried
from kinesis_spout.doctor.machine import Machine
from kinesis_spout.doctor.zookeeper import Ensemble, check_directory
from kinesis_spout.inspection.wording import counted
from kinesis_spout.service.client import KinesisClient
from state.zookeeper.embedded import unused_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_spout.doctor.findings import Subject

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
                    late = f"no executor of {self.master} answered within {LIMIT_S:g} s"
                    advice = "check that the cluster has a free executor that reaches this machine"
                    return failed(f"{late}; {advice}", unreachable=True)
            if not file.is_file():
                lines = filter(None, map(str.strip, log.read_text(errors="replace").split("\n")))
                last = ["no output", *lines][-1][:200]
                return failed(f"the Spark job that checks the executors ended early: {last}")
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
        executors = counted(len({(one.host, one.worker) for one in seen}), "executor")
        found = ", ".join(sorted({one.python for one in seen}))
        yield ok(f"{found} on {executors}, on {_hosts(seen)}", PYTHON)
    without = [one for one in seen if one.error is not None]
    if without:
        cannot = f"kinesis-spout cannot be imported on {_hosts(without)} ({without[0].error})"
        install = "install kinesis-spout in the executors' Python"
        ship = "ship an environment that contains kinesis-spout (spark.archives)"
        yield failed(f"{cannot}; {install}, or {ship}", PACKAGE)
    others = [one for one in seen if one.error is None and one.version != version]
    if others:
        differs = (
            f"kinesis-spout has version {others[0].version} on {_hosts(others)}, but {version} on "
            "this machine"
        )
        yield failed(f"{differs}; install the same version everywhere", PACKAGE)
    elif not without:
        yield ok(f"{version}, the same version as on this machine", PACKAGE)
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


# the tables ---------------------------------------------------------------------------------------
MACHINE = (
    Check("Python", Machine.check_python, is_remote=False, in_executors=True),
    Check("packages", Machine.check_packages, limit_s=60, is_remote=False, in_executors=True),
    Check("Java", Machine.check_java, is_remote=False),
    Check("Spark", Machine.check_spark, is_remote=False),
)
KINESIS = (
    Check("credentials", Stream.check_credentials, in_executors=True),
    Check("endpoint", Stream.check_endpoint, ["credentials"], in_executors=True),
    Check("identity", Stream.check_identity, ["endpoint"], in_executors=True),
    Check("clock", Stream.check_clock, ["endpoint"]),
    tried("kinesis:DescribeStreamSummary", Stream.describe, ["identity"]),
    Check("stream", Stream.check_stream, ["identity"]),
    tried("kinesis:ListShards", Stream.list_shards, ["identity", "stream"]),
    tried("kinesis:GetShardIterator", Stream.get_iterator, ["kinesis:ListShards"]),
    tried("kinesis:GetRecords", Stream.get_records, ["kinesis:GetShardIterator"]),
    Check("kms:Decrypt", Stream.check_key, ["stream"]),
)
_CONSUMER = "kinesis:DescribeStreamConsumer"
FAN_OUT = (
    tried(
        "kinesis:ListStreamConsumers",
        Stream.list_consumers,
        ["stream"],
        refused=warning,
        meaning="the credentials are not allowed to call {action}. A reader of the stream does not "
        "need this permission",
        remedy="to use kinesis-spout consumers, allow {action} in the IAM policy",
    ),
    tried(
        _CONSUMER,
        Stream.describe_consumer,
        ["stream"],
        meaning=(
            "the credentials are not allowed to call {action} on {consumer}, so shards are polled"
        ),
        remedy="allow {action} on the stream's consumers in the credentials' IAM policy",
    ),
    Check("kinesis:RegisterStreamConsumer", Stream.check_registering, [_CONSUMER]),
    Check("kinesis:SubscribeToShard", Stream.check_subscribing, [_CONSUMER]),
)
WRITES = (Check("writing", Stream.check_writes),)
ZOOKEEPER = (
    # The first call starts an embedded server.
    Check("ZooKeeper servers", Ensemble.check_servers, limit_s=40, in_executors=True),
    Check("ZooKeeper session", Ensemble.check_session, ["ZooKeeper servers"], in_executors=True),
    Check("ZooKeeper latency", Ensemble.check_latency, ["ZooKeeper session"], in_executors=True),
    Check("ZooKeeper access", Ensemble.check_access, ["ZooKeeper session"], in_executors=True),
    Check("state", Ensemble.check_state, ["ZooKeeper access"]),
)
# Connecting would start a server where none has run yet.
UNUSED = (Check("ZooKeeper servers", check_directory, is_remote=False, in_executors=True),)
EXECUTORS = (Check("Spark", Cluster.check_executors, limit_s=LIMIT_S + 10, is_remote=False),)


class AreaFinding(NamedTuple):
    area: str
    finding: Finding


def checks_of(stream: Stream) -> Sequence[Check[Stream]]:
    return (*KINESIS, *(FAN_OUT if stream.consumer else ()), *WRITES)


def examine(target: Target, *, in_executor: bool = False) -> Iterator[AreaFinding]:
    """From this process. Blocks for the limits of all checks at most."""

    def found(area: str, rows: Iterable[Check[Subject]], subject: Subject) -> Iterator[AreaFinding]:
        rows = [row for row in rows if row.in_executors or not in_executor]
        return (AreaFinding(area, finding) for finding in run(rows, subject))

    yield from found("this machine", MACHINE, Machine())
    described = None
    if target.stream is not None:
        with closing(KinesisClient(target.aws, target.stream, retry_for_s=4)) as client:
            stream = Stream(client, target.consumer)
            yield from found("Kinesis", checks_of(stream), stream)
            described = stream.described
    if target.zookeeper is not None:
        directory = unused_directory(target.zookeeper)
        if directory is not None:
            yield from found("ZooKeeper", UNUSED, directory)
            return
        with closing(Ensemble(target.zookeeper, target, described)) as ensemble:
            yield from found("ZooKeeper", ZOOKEEPER, ensemble)


def examine_executors(cluster: Cluster) -> Iterator[AreaFinding]:
    """From the executors of a Spark cluster. Starts Spark on it."""
    return (AreaFinding("executors", finding) for finding in run(EXECUTORS, cluster))
