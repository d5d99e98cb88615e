"""An operator's commands on an application, as its user runs them, and what they find."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.shell.command_line import run_cli

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from subprocess import CompletedProcess

    from state.shard_state import ShardState
    from tests.support.kinesis.services import ServedFake

SHARD = "shardId-000000000000"


@dataclass(frozen=True)
class Shell:
    """Runs commands on stream `orders`, with application `etl` in a ZooKeeper of the test's own."""

    fake: ServedFake
    zookeeper: str
    folder: Path

    def run(self, *arguments: str) -> CompletedProcess[str]:
        return run_cli(
            *arguments,
            cwd=self.folder,
            AWS_ACCESS_KEY_ID=ACCESS_KEY,
            AWS_SECRET_ACCESS_KEY=SECRET_KEY,
        )

    def operate(self, *arguments: str, application: str = "etl") -> CompletedProcess[str]:
        named = ("--application", application, "--stream", "orders", "--zookeeper", self.zookeeper)
        return self.run(*arguments, *named)

    def checkpoint(self, *arguments: str, application: str = "etl") -> CompletedProcess[str]:
        stream = () if arguments[0] in {"show", "export", "reset", "history"} else self.endpoint
        return self.operate("checkpoint", *arguments, *stream, application=application)

    @property
    def endpoint(self) -> tuple[str, ...]:
        return "--endpoint-url", self.fake.endpoint_url, "--region", REGION

    def consume(self) -> list[str]:
        """What the application reads, up to now."""
        named = ("--application", "etl", "--zookeeper", self.zookeeper)
        start = ("--from", "TRIM_HORIZON", "--until", "now")
        ended = self.run("consume", "orders", *named, *start, *self.endpoint)
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line)["data"] for line in ended.stdout.splitlines()]

    def put(self, *data: str) -> list[str]:
        """The new records' sequence numbers."""
        return [
            self.fake.model.put("orders", "key", each.encode()).partition(":")[2] for each in data
        ]

    def store(self) -> ZookeeperStateStore:
        return ZookeeperStateStore(self.zookeeper, application="etl", stream="orders")

    def states(self) -> Mapping[str, ShardState]:
        with closing(self.store()) as store:
            return {shard: stored.state for shard, stored in store.load_states().items()}


@pytest.fixture
def shell(fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path) -> Shell:
    fake_kinesis.model.create("orders")
    return Shell(fake_kinesis, zookeeper_chroot, tmp_path)
