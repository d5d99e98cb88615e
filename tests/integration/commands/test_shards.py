"""`kinesis-spout shards` as a user runs it, on a FakeKinesis and a real ZooKeeper."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

from state.process import this_process
from state.store.shard_states import StateChange
from tests.support.shell.consuming import run
from tests.support.shell.operators_shell import SHARD
from tests.support.state.zookeeper import kazoo_client

if TYPE_CHECKING:
    from tests.support.shell.operators_shell import Shell


def test_an_application_beside_its_running_owner(shell: Shell) -> None:
    """The job keeps the ownership meanwhile, and continues."""
    (number,) = shell.put("a")
    shell.consume()
    application = ("--application", "etl", "--zookeeper", shell.zookeeper)
    with closing(shell.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
        known = store.shard_states.load()[SHARD]
        ended = run(shell.fake, "shards", "orders", *application)
        assert (ended.returncode, ended.stderr) == (0, "")
        head, line = ended.stdout.splitlines()
        assert head == "orders  ACTIVE  application etl"
        assert line.startswith(f"└── {SHARD}  readable  100 %  read AFTER:..{number[-12:]}  ")
        (listed,) = json.loads(run(shell.fake, "shards", "orders", *application, "--json").stdout)
        assert (listed["shardId"], listed["state"]) == (SHARD, "readable")
        assert store.shard_states.save([StateChange(known, known.state)])


def test_an_application_without_state_is_left_without(shell: Shell) -> None:
    """Nothing is created in ZooKeeper, not even the chroot."""
    application = ("--application", "typo", "--zookeeper", shell.zookeeper)
    ended = run(shell.fake, "shards", "orders", *application, "--json")
    assert ended.returncode == 0
    assert [one["state"] for one in json.loads(ended.stdout)] == ["new"]
    assert ended.stderr == "note: application typo has no stored state on stream orders\n"
    server, _, chroot = shell.zookeeper.partition("/")
    with kazoo_client(server) as client:
        assert client.exists(f"/{chroot}") is None
