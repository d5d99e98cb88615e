"""Where a job is to work."""

from __future__ import annotations

from dataclasses import dataclass, field

from kinesis_spout.config import AwsConfig, StreamRef
from state.zookeeper.security import OPEN, ZookeeperSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a job is to work. Without a stream, or a ZooKeeper, that area is left out. `consumer`:
    the name or the ARN of the one that a job with enhanced fan-out is to read with. Holds secrets,
    as `AwsConfig` does, and shows none.
    """

    aws: AwsConfig = field(default_factory=AwsConfig)
    stream: StreamRef | None = None
    consumer: str | None = None
    zookeeper: str | None = None
    zookeeper_root: str
    security: ZookeeperSecurity = OPEN
    application: str | None = None
