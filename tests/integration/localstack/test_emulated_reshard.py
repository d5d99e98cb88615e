"""The source follows a reshard on the emulator inside LocalStack too, which gives every closed
shard the end 2**63 - 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kinesis.services import wait_until_active
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import STREAM, StreamUnderTest, ids_of, stream_at

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def emulated(emulator_endpoint: str, zookeeper_chroot: str) -> Iterator[StreamUnderTest]:
    with stream_at(emulator_endpoint, zookeeper_chroot, shards=1) as made:
        yield made


@pytest.mark.emulator
def test_a_closed_shard_that_lags_is_read_to_its_real_end_before_its_children(
    emulated: StreamUnderTest,
) -> None:
    emulated.put(60)
    parent = emulated.split()
    wait_until_active(emulated.client, STREAM)
    emulated.put(20)
    engine = MicroBatchEngine(emulated.settings(max_records_per_shard=20, idle_wait="2s"))
    try:
        engine.run_until_idle()
    finally:
        engine.stop()
    found = [one for batch in sorted(engine.sink) for one in ids_of(engine.sink[batch])]
    assert sorted(found) == sorted(emulated.ids())
    assert {one.partition(":")[0] for one in found[:60]} == {parent}
