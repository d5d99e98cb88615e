"""An operator's commands on an application, as its user runs them, and what they find."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from state import failpoint
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.shard_state import UnresolvedRecord
from state.store.shard_states import StateChange
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.shell.command_line import call_cli, command_line, environment, run_cli

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from subprocess import CompletedProcess

    from state.shard_state import ShardState
    from tests.support.kinesis.services import ServedFake

SHARD = "shardId-000000000000"
_LIMIT_S = 60.0


@dataclass(frozen=True)
class Shell:
    """Runs commands on stream `orders`, with application `etl` in a ZooKeeper of the test's own."""

    fake: ServedFake
    zookeeper: str
    folder: Path

    def run(self, *arguments: str, **variables: str) -> CompletedProcess[str]:
        """In a process of its own where it gets environment variables, such as those of a locale.
        The others run within this one.
        """
        keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        if not variables:
            return call_cli(*arguments, cwd=self.folder, stdin=b"", **keys)
        given = keys | variables
        return run_cli(*arguments, cwd=self.folder, stdin=b"", timeout_s=_LIMIT_S, **given)

    def operate(
        self, *arguments: str, application: str = "etl", **variables: str
    ) -> CompletedProcess[str]:
        named = ("--application", application, "--stream", "orders", "--zookeeper", self.zookeeper)
        return self.run(*arguments, *named, **variables)

    def checkpoint(self, *arguments: str, application: str = "etl") -> CompletedProcess[str]:
        stream = () if arguments[0] in {"show", "export", "reset", "history"} else self.endpoint
        return self.operate("checkpoint", *arguments, *stream, application=application)

    def kill_at(self, step: str, *arguments: str) -> None:
        """Run `checkpoint` with these arguments up to a failpoint, and kill it there."""
        marker = self.folder / f"reached-{step}"
        named = ("--application", "etl", "--stream", "orders", "--zookeeper", self.zookeeper)
        process = subprocess.Popen(
            command_line("checkpoint", *arguments, *named, *self.endpoint),
            cwd=self.folder,
            env=environment(
                AWS_ACCESS_KEY_ID=ACCESS_KEY,
                AWS_SECRET_ACCESS_KEY=SECRET_KEY,
                **{failpoint.VARIABLE: f"{step}@{marker}"},
            ),
        )
        try:
            while not (marker.exists() and marker.read_text()):
                assert process.poll() is None, "it ended before it reached the failpoint"
                os.sched_yield()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(_LIMIT_S)

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

    def store(self, application: str = "etl") -> ZookeeperStateStore:
        return ZookeeperStateStore(self.zookeeper, application=application, stream="orders")

    def leave_unresolved(self, *numbers: str, reason: str = "no rates") -> None:
        """As if these records of the shard had failed three times."""
        with closing(self.store()) as store:
            store.ownership.acquire(this_process(0), timeout_s=60)
            stored = store.shard_states.load()[SHARD]
            failed = tuple(
                UnresolvedRecord(
                    first=SequenceNumber.parse(one),
                    last=SequenceNumber.parse(one),
                    attempts=3,
                    due_ms=1_000,
                    first_failure_ms=0,
                    last_failure_ms=500,
                    reason=reason,
                )
                for one in numbers
            )
            after = replace(stored.state, unresolved=failed, checkpoint=None)
            store.shard_states.move([StateChange(before=stored, after=after)])

    def states(self) -> Mapping[str, ShardState]:
        with closing(self.store()) as store:
            return {shard: stored.state for shard, stored in store.shard_states.load().items()}


@pytest.fixture
def waits_briefly_for_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that change an application wait 15 s for one that was just killed."""
    monkeypatch.setattr("kinesis_spout.cli.places.OWNER_WAIT_S", 0.1)


@pytest.fixture
def shell(fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path) -> Shell:
    fake_kinesis.model.create("orders")
    return Shell(fake_kinesis, zookeeper_chroot, tmp_path)
