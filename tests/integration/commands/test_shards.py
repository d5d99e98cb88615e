"""`kinesis-spout shards` as a user runs it, on a FakeKinesis and a real ZooKeeper."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from state.owner.ownership import this_process
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.state_store import StateChange
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.shell.command_line import call_cli

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.support.kinesis.services import ServedFake

PARENT, OTHER, CHILDREN = (
    "shardId-000000000000",
    "shardId-000000000001",
    ("shardId-000000000002", "shardId-000000000003"),
)


def shards_command(fake: ServedFake, folder: Path, *arguments: str) -> CompletedProcess[str]:
    connection = ("orders", "--endpoint-url", fake.endpoint_url, "--region", REGION)
    return call_cli(
        *("shards", *connection, *arguments),
        cwd=folder,
        AWS_ACCESS_KEY_ID=ACCESS_KEY,
        AWS_SECRET_ACCESS_KEY=SECRET_KEY,
    )


def test_an_application_beside_its_running_owner(
    fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """The job keeps the ownership meanwhile, and continues."""
    fake_kinesis.model.create("orders", shards=2)
    fake_kinesis.model.put("orders", "key", b"record")
    fake_kinesis.model.split("orders", PARENT)
    with closing(
        ZookeeperStateStore(zookeeper_chroot, application="etl", stream="orders")
    ) as store:
        store.acquire(this_process(0), timeout_s=1)
        known = store.save_states(
            [
                StateChange(
                    None,
                    ShardState(shard_id=PARENT, read_position=Position.after(SequenceNumber(5))),
                ),
                StateChange(None, ShardState(shard_id=OTHER, read_position=TRIM_HORIZON)),
                *(
                    StateChange(
                        None,
                        ShardState(shard_id=child, read_position=TRIM_HORIZON, parents=(PARENT,)),
                    )
                    for child in CHILDREN
                ),
            ]
        )
        application = ("--application", "etl", "--zookeeper", zookeeper_chroot)
        ended = shards_command(fake_kinesis, tmp_path, *application)
        assert (ended.returncode, ended.stderr) == (0, "")
        at_start = "read TRIM_HORIZON  checkpoint none  0 unresolved  lag -"
        assert ended.stdout.splitlines() == [
            "orders  ACTIVE  application etl",
            f"├── {PARENT}  draining  50 %  read AFTER:5  checkpoint none  0 unresolved  lag -",
            f"│   ├── {CHILDREN[0]}  waiting  25 %  for {PARENT}  {at_start}",
            f"│   └── {CHILDREN[1]}  waiting  25 %  for {PARENT}  {at_start}",
            f"└── {OTHER}  readable  50 %  {at_start}",
        ]
        listed = json.loads(shards_command(fake_kinesis, tmp_path, *application, "--json").stdout)
        assert [(one["shardId"], one["state"]) for one in listed] == [
            (PARENT, "draining"),
            (OTHER, "readable"),
            *((child, "waiting") for child in CHILDREN),
        ]
        assert store.save_states([StateChange(known[1], known[1].state)])


def test_an_application_without_state_is_left_without(
    fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """Nothing is created in ZooKeeper, not even the chroot."""
    fake_kinesis.model.create("orders")
    ended = shards_command(
        fake_kinesis, tmp_path, "--application", "typo", "--zookeeper", zookeeper_chroot, "--json"
    )
    assert ended.returncode == 0
    assert [one["state"] for one in json.loads(ended.stdout)] == ["new"]
    assert ended.stderr == "note: application typo has no state on stream orders\n"
    server, _, chroot = zookeeper_chroot.partition("/")
    client = KazooClient(server)
    client.start()
    try:
        assert client.exists(f"/{chroot}") is None
    finally:
        client.stop()
        client.close()


def test_a_missing_stream_is_one_sentence(fake_kinesis: ServedFake, tmp_path: Path) -> None:
    ended = shards_command(fake_kinesis, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "stream orders" in ended.stderr
