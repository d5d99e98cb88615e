"""What is examined, area by area: the tables of checks, in their order."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.doctor.executors import LIMIT_S, Cluster
from kinesis_spout.doctor.findings import Check, run, warning
from kinesis_spout.doctor.kinesis import Stream, tried
from kinesis_spout.doctor.machine import Machine
from kinesis_spout.doctor.zookeeper import Ensemble, check_directory, unused_directory
from kinesis_spout.service.client import KinesisClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_spout.doctor.findings import Finding, Subject
    from kinesis_spout.doctor.target import Target

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
        meaning="the credentials are not allowed to call {action}. A reader does not need it",
        remedy="to use kinesis-spout consumers, allow {action} in their IAM policy",
    ),
    tried(
        _CONSUMER,
        Stream.describe_consumer,
        ["stream"],
        meaning=(
            "the credentials are not allowed to call {action} on {consumer}, so shards are polled"
        ),
        remedy="allow {action} on the stream's consumers in their IAM policy",
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
