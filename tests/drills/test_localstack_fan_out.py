"""Source and spout read by subscription on LocalStack, over a split and, the source, a restart.

LocalStack breaks the subscription of a closed shard off after its last records. The end is read by
polling then. On a busy machine it pushes so late that a batch polls before, as it should. So polls
are few here, and the test goes on until a batch got records by subscription.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kinesis.services import wait_until_active
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import READ_MODES, STREAM, ids_of, stream_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spark.source import StreamUnderTest

pytestmark = [pytest.mark.emulator, pytest.mark.localstack]

# Several times what the service asks for between two subscriptions, on a machine that has no time.
LONGEST_WAIT_S = 300.0


@pytest.fixture
def stream(localstack_endpoint: str, zookeeper_chroot: str) -> Iterator[StreamUnderTest]:
    with stream_at(localstack_endpoint, zookeeper_chroot, shards=2) as made:
        yield made


def test_every_record_comes_once_and_in_order_over_a_split_and_a_restart(
    stream: StreamUnderTest,
) -> None:
    """The second run begins with a backlog in the parent and in its children."""
    stream.read_mode = READ_MODES["efo"]
    settings = stream.settings(max_records_per_shard=40, idle_wait="2s", reads_per_second=0.2)
    engine = MicroBatchEngine(settings)
    before = {shard["ShardId"] for shard in stream.open_shards()}
    try:
        stream.put(60)
        engine.run_batch()
        stream.put(60)
        parent = stream.split()
        wait_until_active(stream.client, STREAM)
        stream.put(60)
        engine.run_batch()
        engine.stop()
        engine.run_until_idle()
        read_until_pushed(engine, stream)
    finally:
        engine.stop()
    found = [one for batch in sorted(engine.sink) for one in ids_of(engine.sink[batch])]
    assert sorted(found) == sorted(stream.ids())
    for shard, sequences in stream.records.items():
        assert [one for one in found if one.startswith(shard)] == [
            f"{shard}:{sequence}" for sequence in sequences
        ]
    shards = [one.partition(":")[0] for one in found]
    children = set(stream.records) - before
    last_of_parent = max(place for place, shard in enumerate(shards) if shard == parent)
    assert len(children) == 2
    assert all(shards.index(child) > last_of_parent for child in children)


def read_until_pushed(engine: MicroBatchEngine, stream: StreamUnderTest) -> None:
    """Put records and read them, until one of this run's batches has got some by subscription."""
    until_s = time.monotonic() + LONGEST_WAIT_S
    while not (report := last_report(engine))["pushedRecords"]:
        assert time.monotonic() < until_s, f"all was polled: {report}"
        stream.put(20)
        engine.run_until_idle()


def last_report(engine: MicroBatchEngine) -> dict[str, Any]:
    """What the source tells of the run's batches that are settled."""
    assert engine.reader is not None
    report = engine.reader.reportLatestOffset()
    assert report is not None
    return report
