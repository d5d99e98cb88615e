"""The server of `make bench-peers`: both encodings say the same, and limits hold."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import boto3
import cbor2
import pytest
import urllib3
from botocore.config import Config

from benchmarks.peers.found_peers import FoundPeers
from benchmarks.peers.servers import ReplayServer, replay_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    shutil.which("javac") is None, reason="the replay server needs a JDK: there is no javac"
)
STREAMS = ["big:4:80000:100", "live:1:100000:10:500"]


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> FoundPeers:
    return FoundPeers(tmp_path_factory.mktemp("peers"), None, None)


@pytest.fixture(scope="module")
def server(peers: FoundPeers) -> Iterator[ReplayServer]:
    with replay_server(peers.java, peers.server_classpath, STREAMS) as running:
        yield running


def client(server: ReplayServer) -> Any:
    return boto3.client(
        "kinesis",
        endpoint_url=server.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )


def read(server: ReplayServer, stream: str, shard: int, start: str, **more: Any) -> dict[str, Any]:
    kinesis = client(server)
    iterator = kinesis.get_shard_iterator(
        StreamName=stream,
        ShardId=f"shardId-{shard:012d}",
        ShardIteratorType=start,
        **more,
    )
    found: dict[str, Any] = kinesis.get_records(ShardIterator=iterator["ShardIterator"])
    return found


def ask(server: ReplayServer, kind: str, body: bytes) -> bytes:
    headers = {"X-Amz-Target": "Kinesis_20131202.GetRecords", "Content-Type": kind}
    return urllib3.request("POST", server.endpoint_url, body=body, headers=headers).data


def test_a_shard_has_its_share_of_the_records_in_pages_of_10_000(server: ReplayServer) -> None:
    shards = client(server).list_shards(StreamName="big")["Shards"]
    assert len(shards) == 4
    assert shards[3]["HashKeyRange"]["EndingHashKey"] == str(2**128 - 1)
    first = read(server, "big", 3, "TRIM_HORIZON")
    assert len(first["Records"]) == 10_000
    assert first["MillisBehindLatest"] == 10_000
    last = first["Records"][-1]["SequenceNumber"]
    rest = read(server, "big", 3, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=last)
    assert len(rest["Records"]) == 10_000
    assert rest["MillisBehindLatest"] == 0
    numbers = [int(one["SequenceNumber"]) for one in first["Records"] + rest["Records"]]
    assert numbers == sorted(set(numbers))
    assert read(server, "big", 3, "LATEST")["Records"] == []


def test_both_encodings_say_the_same(server: ReplayServer) -> None:
    asked = {"ShardIterator": "big/1/19998", "Limit": 10}
    in_json = json.loads(ask(server, "application/x-amz-json-1.1", json.dumps(asked).encode()))
    body = ask(server, "application/x-amz-cbor-1.1", cbor2.dumps(asked))
    in_cbor = cbor2.loads(body, semantic_decoders={1: lambda ms, _immutable: ms})
    assert len(in_json["Records"]) == 2
    assert in_json["NextShardIterator"] == in_cbor["NextShardIterator"] == "big/1/20000"
    for ours, theirs in zip(in_json["Records"], in_cbor["Records"], strict=True):
        assert base64.b64decode(ours["Data"]) == theirs["Data"]
        assert len(theirs["Data"]) == 100
        assert ours["SequenceNumber"] == theirs["SequenceNumber"]
        assert ours["PartitionKey"] == theirs["PartitionKey"]
        arrived_ms = theirs["ApproximateArrivalTimestamp"]
        assert round(1000 * ours["ApproximateArrivalTimestamp"]) == arrived_ms


def test_a_live_stream_has_the_records_whose_time_has_come(server: ReplayServer) -> None:
    def arrived() -> list[float]:
        page = read(server, "live", 0, "TRIM_HORIZON")
        return [one["ApproximateArrivalTimestamp"].timestamp() for one in page["Records"]]

    before = arrived()
    wait_until(lambda: len(arrived()) > len(before))
    now = time.time()  # noqa: TID251  # the server's clock
    assert max(arrived()) <= now + 1
    assert before == arrived()[: len(before)]


def test_what_the_server_does_not_have_is_an_error(server: ReplayServer) -> None:
    kinesis = client(server)
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
        kinesis.describe_stream_summary(StreamName="nowhere")


def test_the_limits_of_a_shard_refuse_reads_until_its_bytes_are_paid(peers: FoundPeers) -> None:
    streams = ["--limits", "big:2:4000:10000"]
    with replay_server(peers.java, peers.server_classpath, streams) as server:
        # A page of 10 MiB, after which the shard is blocked for five seconds.
        assert len(read(server, "big", 0, "TRIM_HORIZON")["Records"]) == 1047
        assert 0 < server.stats()["debt_s"] < 5
        kinesis = client(server)
        with pytest.raises(kinesis.exceptions.ProvisionedThroughputExceededException):
            read(server, "big", 0, "TRIM_HORIZON")
        # Another shard has limits of its own.
        assert len(read(server, "big", 1, "TRIM_HORIZON")["Records"]) == 1047
        assert server.stats()["calls"]["refused"] == 1


def test_the_server_ends_when_its_user_is_gone(peers: FoundPeers, tmp_path: Path) -> None:
    command = [str(peers.java), "-cp", peers.server_classpath, "ReplayServer", "big:1:10:10"]
    with (tmp_path / "out").open("w") as out:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, check=False)
    assert ended.returncode == 0


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
