"""Records of the largest size, and records without partition keys, through the source with retries
and dead letters, a batch read, the sink and a redrive. Tests say on which Spark: `Run` runs the
program `all_ways_through` there.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.kinesis.large_records import KEY, MIB, digests, take_large_records
from tests.support.kinesis.services import (
    create_stream,
    fields_of,
    kinesis_client,
    records_on,
    serve,
)
from tests.support.spark import all_ways_through
from tests.support.spark.source import STREAM, ShiftedClock, StreamUnderTest
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kinesis_spout.testing import FakeKinesis
    from kinesis_spout.testing.stream.shard import StoredRecord

    Run = Callable[[dict[str, Any]], dict[str, Any]]

DEAD, COPY, BACK = "dead", "copy", "back"
STREAMS = (STREAM, DEAD, COPY, BACK)


def program(stream: StreamUnderTest, folder: Path, **job: Any) -> dict[str, Any]:
    aws = {
        **fields_of(stream.endpoint_url),
    }
    tracking = {"retry_limit": 2, "retry_first_delay": "10ms", "retry_max_delay": "20ms"}
    return {
        "program": all_ways_through.__name__,
        "source": stream.fields(available_now_retry_wait="60s"),
        "tracking": tracking | job.pop("tracking", {}),
        "aws": aws,
        "connection": stream.connection(),
        "sink": {},
        "folder": str(folder),
        "dead": DEAD,
        "copy": COPY,
        "back": BACK,
        **job,
    }


def digest_of(record: StoredRecord) -> str:
    return sha256(record.data).hexdigest()


# large records ------------------------------------------------------------------------------------
@contextmanager
def large_streams(endpoint: str, zookeeper: str) -> Iterator[StreamUnderTest]:
    """Streams of one shard, which take large records, except the one of the letters."""
    with kinesis_client(endpoint, read_timeout_s=60) as client:
        for name in STREAMS:
            create_stream(client, name)
        for name in (STREAM, COPY, BACK):
            take_large_records(client, name)
        yield StreamUnderTest(client, endpoint, zookeeper, ShiftedClock())
        for name in STREAMS:
            client.delete_stream(StreamName=name)
        wait_until(lambda: not client.list_streams()["StreamNames"])


def check_large_records(run: Run, stream: StreamUnderTest, size: int, folder: Path) -> None:
    """They come through one by one and whole, and the sink keeps the order of their key.

    `size`: of data and key of a large one. One of them fails once, another one always: its letter
    is on a stream that takes 1 MiB, and the redrive puts it together again.
    """
    random = Random(15)  # noqa: S311  # not a secret
    sizes = [9, size - len(KEY), 9, size - len(KEY), 9]
    payloads = [random.randbytes(count) for count in sizes]
    for payload in payloads:
        stream.put_record(KEY, payload)
    ((late,), (bad,)) = digests([payloads[1]]), digests([payloads[3]])
    job = program(stream, folder, late=[late], bad=[bad], sink={"ordering": "key"})
    answer = run(job)

    assert Counter((digest, attempt) for digest, _, attempt, *_ in answer["tracked"]) == Counter(
        (digest, 2 if digest == late else 1) for digest in digests(payloads) if digest != bad
    )
    assert sorted(digest for digest, _, _ in answer["batch"]) == digests(payloads)
    copied = [one["Data"] for one in records_on(stream.client, COPY)]
    assert [digests([one]) for one in copied] == [digests([one]) for one in payloads]
    parts = records_on(stream.client, DEAD)
    assert len(parts) > size // MIB
    assert max(len(one["Data"]) + len(one["PartitionKey"].encode()) for one in parts) <= MIB
    assert answer["redriven"] == 1
    assert digests(one["Data"] for one in records_on(stream.client, BACK)) == [bad]
    assert stream.checkpoints() == stream.tips()


# streams with record distribution AUTO ------------------------------------------------------------
@contextmanager
def auto_streams(zookeeper: str) -> Iterator[tuple[StreamUnderTest, FakeKinesis]]:
    """The streams, with record distribution AUTO but for the one of the letters."""
    clock = ShiftedClock()
    with serve(clock=clock) as fake, kinesis_client(fake.endpoint_url) as client:
        for name in (STREAM, COPY, BACK):
            fake.model.create(name, shards=4, distribution="AUTO")
        create_stream(client, DEAD)
        yield StreamUnderTest(client, fake.endpoint_url, zookeeper, clock), fake.model


def check_records_without_keys(
    run: Run, stream: StreamUnderTest, model: FakeKinesis, records: int, folder: Path
) -> None:
    """They come through and block nothing.

    Under block_key: a failing record without a key holds no other one back, in the middle of a
    split; their nulls arrive everywhere, and the sink gives them keys of its own. Each shard keeps
    its order, and a child comes after its parent.
    """
    keys = {b"record %d" % n: "same" if n % 3 == 0 else None for n in range(records)}
    for n, (data, key) in enumerate(keys.items()):
        model.put(STREAM, key, data)
        if n == records // 2:
            stream.split()
    by_digest = {digests([data])[0]: key for data, key in keys.items()}
    payloads = list(keys)
    bad, late = digests(payloads[1:1000:100]), digests(payloads[2:1000:100])
    bad = [one for one in bad if by_digest[one] is None]
    late = [one for one in late if by_digest[one] is None]
    job = program(stream, folder, bad=bad, late=late, tracking={"on_failure": "block_key"})
    answer = run(job)

    assert Counter(tuple(row[:3]) for row in answer["tracked"]) == Counter(
        (one, key, 2 if one in late else 1) for one, key in by_digest.items() if one not in bad
    )
    tried: dict[str, list[str]] = {}
    batches: dict[str, set[int]] = {}
    for digest, _, attempt, shard, batch in answer["tracked"]:
        if attempt == 1:
            tried.setdefault(shard, []).append(digest)
            batches.setdefault(shard, set()).add(batch)
    shards = model.stream(STREAM).shards
    assert tried == {
        shard: [one for one in map(digest_of, kept.records) if one not in {*bad, *late}]
        for shard, kept in shards.items()
    }
    assert {len(one) for one in batches.values()} == {1}  # nothing waited for a failed record
    parents = [(batches[one], batches[shard]) for shard in shards for one in shards[shard].parents]
    assert len(parents) == 2
    assert all(max(before) < min(after) for before, after in parents)
    assert {(digest, key) for digest, key, _ in answer["batch"]} == set(by_digest.items())
    assert len(answer["batch"]) == records
    copied = records_on(stream.client, COPY)
    assert digests(one["Data"] for one in copied) == sorted(by_digest)
    given = {one["PartitionKey"] for one in copied if keys[one["Data"]] is None}
    assert all(one["PartitionKey"] == "same" for one in copied if keys[one["Data"]])
    assert "same" not in given
    assert {len(key) for key in given} == {16}
    letters = [json.loads(one["Data"]) for one in records_on(stream.client, DEAD)]
    assert {(one["partitionKey"], one["attempts"]) for one in letters} == {(None, 3)}
    assert answer["redriven"] == len(letters) == len(bad) > 0
    back = records_on(stream.client, BACK)
    assert digests(one["Data"] for one in back) == sorted(bad)
    # Of a letter without a key, the message id takes its place.
    assert {one["PartitionKey"] for one in back} == {one["messageId"] for one in letters}
    states = stream.states()
    assert not any(state.unresolved for state in states.values())
    assert sum(state.checkpoint_text == "SHARD_END" for state in states.values()) == 1
