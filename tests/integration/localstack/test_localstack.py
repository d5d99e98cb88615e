"""LocalStack's pip runtime as the tests use it: on loopback only, ended with its starter, with
streams that are resharded.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import pytest

from localstack import runtime, seed
from tests.support.kinesis.localstack import LocalStackStream, stream_on
from tests.support.kinesis.services import kinesis_client

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.emulator, pytest.mark.localstack]
HASH_KEYS = 2**128
LIMIT_S = 60.0
STARTER = """
import sys
from pathlib import Path
from localstack import runtime
with runtime.running(Path(sys.argv[1])) as service:
    print(service.pid, flush=True)
    sys.stdin.read()
"""


def test_nobody_else_on_the_network_reaches_it(localstack_endpoint: str) -> None:
    """It accepts any credentials. On every interface it would also hold 127.0.0.2, and the port
    could not be bound there.
    """
    port = urlsplit(localstack_endpoint).port
    with socket.socket() as elsewhere:
        elsewhere.bind(("127.0.0.2", port))


def test_a_port_in_use_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A service that already answers there would be mistaken for the new LocalStack."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(runtime.LocalStackError, match=f"port {port} "),
            runtime.running(tmp_path / "log", port=port),
        ):
            pytest.fail("nothing runs")


@pytest.mark.parametrize("killed", ["starter", "localstack"])
def test_nothing_is_left_when_one_of_its_processes_is_killed(killed: str, tmp_path: Path) -> None:
    """LocalStack sees the end of its starter, the emulator sees the end of LocalStack. Meanwhile
    neither connects to the outside.
    """
    log = tmp_path / "localstack.log"
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=runtime.HERE.parent,
    )
    with starter:
        assert starter.stdout is not None
        localstack = psutil.Process(int(starter.stdout.readline()))
        emulator = localstack.children(recursive=True)
        assert emulator
        (starter if killed == "starter" else localstack).kill()
        _, alive = psutil.wait_procs(
            emulator if killed == "localstack" else [localstack, *emulator], timeout=LIMIT_S
        )
        assert not alive
        assert "refused:" not in log.read_text()


def test_a_split_gives_two_open_shards_and_closes_the_parent(
    localstack_stream: LocalStackStream,
) -> None:
    """The helper waits for the children and returns them, lower hash keys first."""
    (parent,) = localstack_stream.open_shard_ids()
    lower, upper = localstack_stream.split(parent)
    assert localstack_stream.open_shard_ids() == [lower, upper]
    assert localstack_stream.put(b"x", "key", hash_key=0)[0] == lower
    assert localstack_stream.put(b"x", "key", hash_key=HASH_KEYS - 1)[0] == upper


def test_a_merge_gives_one_open_shard(localstack_endpoint: str) -> None:
    """The helper waits for the child and returns it."""
    with stream_on(localstack_endpoint, shards=2) as stream:
        child = stream.merge(*stream.open_shard_ids())
        assert stream.open_shard_ids() == [child]
        assert len(stream.shards()) == 3


@pytest.mark.parametrize("count", [4, 1])
def test_scaling_leaves_that_many_open_shards(localstack_endpoint: str, count: int) -> None:
    """Up and down; a shard that was open before and still is does not count as new."""
    with stream_on(localstack_endpoint, shards=2) as stream:
        new = stream.update_shard_count(count)
        assert len(stream.open_shard_ids()) == count
        assert set(new) <= set(stream.open_shard_ids())


def test_a_recreated_stream_is_empty(localstack_stream: LocalStackStream) -> None:
    """Its shards have the old names; its records are gone."""
    shard_id, _ = localstack_stream.put(b"old", "key")
    localstack_stream.recreate()
    assert localstack_stream.open_shard_ids() == [shard_id]
    start = localstack_stream.client.get_shard_iterator(
        StreamName=localstack_stream.name, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    assert localstack_stream.client.get_records(ShardIterator=start)["Records"] == []


def test_the_seed_script_puts_records_before_and_after_a_split(
    localstack_endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice on one stream: the second run finds it and adds to it."""
    name = f"seeded-{time.time_ns()}"
    arguments = [
        "--endpoint",
        localstack_endpoint,
        "--stream",
        name,
        "--shards",
        "1",
        "--records",
        "20",
        "--split",
    ]
    assert seed.main(arguments) == 0
    assert "shardId-000000000000 is split" in capsys.readouterr().out
    assert seed.main(arguments) == 0
    with kinesis_client(localstack_endpoint) as client:
        stream = LocalStackStream(name, localstack_endpoint, client)
        assert len(stream.open_shard_ids()) == 3
        client.delete_stream(StreamName=name)


def test_a_seed_without_a_service_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a traceback."""
    assert seed.main(["--endpoint", "http://127.0.0.1:1", "--stream", "nowhere"]) == 1
    assert capsys.readouterr().err.startswith(
        "nowhere at http://127.0.0.1:1 was not seeded: Could not connect"
    )
