"""What other consumers have stored, as runs of their own code have left it, and streams like those
that they read.

`awslabs.json` was written by awslabs' connector at commit 0f4c005 on Spark 4.3.0, which read a
FakeKinesis. It tells how it was made. Its sequence numbers are those of that stream; `for_stream`
puts in those of the test's, record by record. `kcl_items` are the items that the Kinesis Client
Library 3.5.1 left in its table when it had read `kcl_stream`: it processed all records, and
checkpointed b3 of shard 1 and user record c1 of shard 2; shard 0 was split meanwhile.

The Storm spout's values are what its own classes (`ShardListV0`, `ShardStateV0` of version 1.1.1)
give to Jackson; the paths are from its `ZookeeperShardState`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient

from tests.support.aggregates.wire import aggregate_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.checkpoints.migration.import_plan import Item
    from kinesis_spout.testing.fake_kinesis import FakeKinesis

_HERE = Path(__file__).parent
STREAM = "orders"
UPPER_HALF = 2**127
KEY = "k0"  # its hash is in the first quarter of the keys


def for_stream(model: FakeKinesis) -> dict[str, str]:
    """The checkpoint of awslabs' connector, by file, with the sequence numbers of the model's
    stream.
    """
    text = (_HERE / "awslabs.json").read_text("utf-8")
    here = numbers(model)
    for number, place in json.loads(text)["records"].items():
        text = text.replace(number, here[place])
    found: dict[str, str] = json.loads(text)["files"]
    return found


# As `numbers` of another stream has them.
ELSEWHERE = {
    "shardId-000000000001:3": "49680517160257281159789486555414400255046850205817241618",
    "shardId-000000000002:0": "49680517180261049602871455513375566323071278281215967266",
}


def lease(key: str, checkpoint: str, sub: int = 0, **more: dict[str, Any]) -> Item:
    """An item of the KCL's table. A lease has more: its keys, and figures of its reading."""
    return {
        "leaseKey": {"S": key},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub)},
        **more,
    }


def kcl_items(here: Mapping[str, str]) -> list[Item]:
    """`here`: by shard and index, the sequence numbers of the stream."""
    parent, other, left, right = (f"shardId-00000000000{index}" for index in range(4))
    of_lease: dict[str, Any] = {"entityType": {"S": "LEASE"}, "leaseOwner": {"S": "worker-1"}}
    child = of_lease | {"parentShardId": {"SS": [parent]}}
    return [
        {"leaseKey": {"S": "Migration3.0"}, "entityType": {"S": "CLIENT_VERSION_MIGRATION"}},
        lease(parent, "SHARD_END", childShardIds={"SS": [right, left]}, **of_lease),
        lease(other, here[f"{other}:3"], **of_lease),
        lease(left, here[f"{left}:0"], 1, **child),
        lease(right, "TRIM_HORIZON", **child),
        {"leaseKey": {"S": "worker-1"}, "entityType": {"S": "WORKER_METRIC_STATS"}},
    ]


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
    client = KazooClient(server)
    client.start()
    try:
        for path, text in values.items():
            client.create(f"/{chroot}{root}/{path}", text.encode(), makepath=True)
    finally:
        client.stop()
        client.close()


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
