"""What other consumers have stored, captured from runs of their own code, and streams like those
that they read.

`kcl.json` was written by the Kinesis Client Library 3.5.1, `awslabs.json` by awslabs' connector at
commit 0f4c005 on Spark 4.3.0; both read a FakeKinesis. Each tells how it was made. Its sequence
numbers are those of that stream; `for_stream` puts in those of the test's, record by record.

The Storm spout's values are what its own classes (`ShardListV0`, `ShardStateV0` of version 1.1.1)
give to Jackson; the paths are from its `ZookeeperShardState`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.aggregates.wire import aggregate_of
from tests.support.state.zookeeper import kazoo_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.testing.fake_kinesis import FakeKinesis

_HERE = Path(__file__).parent
STREAM = "orders"
UPPER_HALF = 2**127
KEY = "k0"  # its hash is in the first quarter of the keys


def captured(name: str) -> dict[str, Any]:
    """A captured state: `kcl` or `awslabs`."""
    found: dict[str, Any] = json.loads((_HERE / f"{name}.json").read_text("utf-8"))
    return found


def for_stream(name: str, model: FakeKinesis) -> dict[str, Any]:
    """A captured state with the sequence numbers of the model's stream."""
    text = (_HERE / f"{name}.json").read_text("utf-8")
    here = numbers(model)
    for number, place in captured(name)["records"].items():
        text = text.replace(number, here[place])
    found: dict[str, Any] = json.loads(text)
    return found


def numbers(model: FakeKinesis) -> Mapping[str, str]:
    """By shard and index (`shardId-000000000000:0`), the sequence numbers of the stream."""
    return {
        f"{shard.shard_id}:{index}": str(record.sequence)
        for shard in model.shards(STREAM)
        for index, record in enumerate(model.records(STREAM, shard.shard_id))
    }


def write_files(location: Path, files: Mapping[str, str]) -> Path:
    """A checkpoint location with these files."""
    for name, text in files.items():
        file = location / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return location


def put(model: FakeKinesis, shard_half: int, *data: bytes) -> None:
    for one in data:
        model.put(STREAM, KEY, one, explicit_hash_key=shard_half)


def kcl_stream(model: FakeKinesis) -> None:
    """The stream that the KCL read: shard 0 is split into 2 and 3, which go on with its keys."""
    model.create(STREAM, shards=2)
    put(model, 0, b"a0", b"a1", b"a2")
    put(model, UPPER_HALF, b"b0", b"b1", b"b2", b"b3!", b"b4", b"b5")
    model.split(STREAM, "shardId-000000000000")
    put(model, 0, aggregate_of([b"c0", b"c1!", b"c2"], [KEY]))
    put(model, UPPER_HALF // 2, b"d0")


def awslabs_stream(model: FakeKinesis) -> None:
    """The stream that awslabs' connector read."""
    model.create(STREAM, shards=2)
    put(model, 0, b"a0", b"a1", b"a2", aggregate_of([b"g0", b"g1", b"g2"], [KEY]))
    put(model, UPPER_HALF, b"b0", b"b1", b"b2", b"b3")
    put(model, UPPER_HALF, b"b4", b"b5")
    put(model, 0, b"a9")


def storm_spout_state(model: FakeKinesis, zookeeper: str, root: str) -> None:
    """The stream of `kcl_stream`, as the spout leaves it: shard 0 was read to its last record,
    shard 1 to its fourth, and of the children only 2 has an acked record. Byte for byte what the
    spout writes.
    """
    here = numbers(model)
    values = {
        "shardList": '{"shardList":["shardId-000000000000","shardId-000000000001",'
        '"shardId-000000000002","shardId-000000000003"]}',
        "shardId-000000000000/state": f'{{"checkpoint":"{here["shardId-000000000000:2"]}"}}',
        "shardId-000000000001/state": f'{{"checkpoint":"{here["shardId-000000000001:3"]}"}}',
        "shardId-000000000002/state": f'{{"checkpoint":"{here["shardId-000000000002:0"]}"}}',
        "shardId-000000000003/state": '{"checkpoint":""}',
    }
    server, _, chroot = zookeeper.partition("/")
    with kazoo_client(server) as client:
        for path, text in values.items():
            client.create(f"/{chroot}{root}/{path}", text.encode(), makepath=True)


def progress_of(model: FakeKinesis) -> str:
    """A progress with the offsets that Databricks documents: shard 1 was not begun."""
    here = numbers(model)
    offsets = [
        databricks_offset("shardId-000000000000", here["shardId-000000000000:2"]),
        databricks_offset("shardId-000000000001", None),
    ]
    return json.dumps({"sources": [{"endOffset": offsets}]})


def databricks_offset(shard: str, last: str | None) -> dict[str, Any]:
    """Of a shard that was read up to this record, or was not begun."""
    return {
        "shard": {"stream": STREAM, "shardId": shard},
        "firstSeqNum": last,
        "lastSeqNum": last,
        "closed": False,
        "msBehindLatest": None if last is None else "0",
        "lastRecordSeqNum": last,
    }
