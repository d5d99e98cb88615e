"""What is examined, area by area: this machine, the stream, ZooKeeper. The same in executors."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.doctor.application import ApplicationCheckup
from kinesis_spout.doctor.checkup import run
from kinesis_spout.doctor.fan_out import WantedConsumer  # noqa: TC001  # msgspec reads it
from kinesis_spout.doctor.installation import Installation
from kinesis_spout.doctor.kinesis import KinesisCheckup
from kinesis_spout.doctor.runtimes import Runtimes
from kinesis_spout.doctor.zookeeper import ZookeeperCheckup, never_ran
from state.zookeeper.security import OPEN, ZookeeperSecurity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.doctor.checkup import Check
    from kinesis_spout.doctor.finding import Finding

MACHINE, KINESIS, ZOOKEEPER, EXECUTORS = "this machine", "Kinesis", "ZooKeeper", "executors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job is to work. Without a stream, or a ZooKeeper, that area is left out.
    `consumer`: the one of enhanced fan-out, where the job is to read with one. Holds
    secrets, as `AwsConfig` does, and shows none.
    """

    aws: AwsConfig = field(default_factory=AwsConfig)
    stream: StreamRef | None = None
    consumer: WantedConsumer | None = None
    zookeeper: str | None = None
    zookeeper_root: str
    security: ZookeeperSecurity = OPEN
    application: str | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the job's nodes, as far as they are known."""
        if self.application is None:
            return (self.zookeeper_root,)
        if self.stream is None:
            return self.zookeeper_root, self.application
        return self.zookeeper_root, self.application, self.stream.name

    def to_json(self) -> str:
        """With all secrets: for a pipe to another process, never for a file or a log."""
        return msgspec.json.encode(asdict(self)).decode()

    @classmethod
    def of_json(cls, text: str) -> Place:
        return msgspec.json.decode(text, type=Place)


class AreaFinding(NamedTuple):
    area: str
    finding: Finding


def examine(place: Place) -> Iterator[AreaFinding]:
    """From this process. Blocks for the limits of all checks at most."""
    yield from _in_area(MACHINE, run([*Installation().checks(), *Runtimes().checks()]))
    kinesis = None
    if place.stream is not None:
        checkup = KinesisCheckup(place.aws, place.stream, consumer=place.consumer)
        with closing(checkup) as kinesis:
            yield from _in_area(KINESIS, run(kinesis.checks()))
    if place.zookeeper is not None:
        with closing(ZookeeperCheckup(place.zookeeper, place.path, place.security)) as zookeeper:
            checks = [*zookeeper.checks(), *_state_checks(place, kinesis)]
            yield from _in_area(ZOOKEEPER, run(checks))


def examine_executor(place: Place) -> list[Finding]:
    """From an executor: its packages, and whether it can reach what its tasks use."""
    found = list(run(Installation().checks()))
    if place.stream is not None:
        with closing(KinesisCheckup(place.aws, place.stream)) as kinesis:
            found += run(kinesis.way_checks())
    if place.zookeeper is not None:
        with closing(ZookeeperCheckup(place.zookeeper, place.path, place.security)) as zookeeper:
            found += run(zookeeper.checks())
    return found


def _state_checks(place: Place, kinesis: KinesisCheckup | None) -> list[Check]:
    """Only of an application on a stream whose ZooKeeper runs already."""
    zookeeper, stream = place.zookeeper, place.stream
    if zookeeper is None or kinesis is None or stream is None or place.application is None:
        return []
    if never_ran(zookeeper):
        return []
    return ApplicationCheckup(
        zookeeper=zookeeper,
        root=place.zookeeper_root,
        application=place.application,
        stream=stream.name,
        security=place.security,
        described=lambda: kinesis.described,
    ).checks()


def _in_area(area: str, findings: Iterator[Finding]) -> Iterator[AreaFinding]:
    return (AreaFinding(area, one) for one in findings)
