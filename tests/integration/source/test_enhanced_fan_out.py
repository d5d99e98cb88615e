"""The source reads by subscription over HTTP: real sockets, and threads of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing import drop, error, slow
from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import READ_MODES, ids_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.testing import Fault
    from tests.support.kinesis.services import ServedFake

STREAM = "orders"
PATIENCE_S = 30.0


@pytest.fixture
def engine(fake_kinesis: ServedFake, zookeeper_chroot: str) -> Iterator[MicroBatchEngine]:
    """Of a stream of two shards."""
    fake_kinesis.model.create(STREAM, shards=2)
    given: dict[str, Any] = {
        "stream": STREAM,
        "application": "orders-etl",
        "zookeeper": zookeeper_chroot,
        "endpoint_url": fake_kinesis.endpoint_url,
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "starting_position": "TRIM_HORIZON",
        "probe_interval": "200ms",
        "idle_wait": "500ms",
    }
    engine = MicroBatchEngine(KinesisSource(**given, **READ_MODES["efo"]).settings())
    yield engine
    engine.stop()
    ProcessServices.forget_all()


@pytest.mark.parametrize(
    ("fault", "fallback"),
    [
        (slow(2.0), "silent"),
        (error("ResourceInUseException"), "in_use"),
        (drop(), "refused"),
    ],
    ids=["silent", "in use", "dropped"],
)
def test_a_stream_that_cannot_be_subscribed_to_is_polled(
    fake_kinesis: ServedFake, engine: MicroBatchEngine, fault: Fault, fallback: str
) -> None:
    fake_kinesis.model.faults.add(fault, operation="SubscribeToShard", times=None)
    wanted = [fake_kinesis.model.put(STREAM, f"key {n}", b"x") for n in range(20)]
    engine.run_until_idle()
    found = [one for rows in engine.sink.values() for one in ids_of(rows)]
    assert sorted(found) == sorted(wanted)
    assert engine.reader is not None
    report = engine.reader.reportLatestOffset()
    assert report is not None
    assert (report["pushedRecords"], report["polledRecords"]) == (0, 20)
    # A refusal that takes longer than the task waits is silence.
    assert report["fallbacks"].keys() <= {fallback, "silent"}
    assert report["fallbacks"]
    for thread in threading.enumerate():
        if thread.name.startswith("kinesis-subscription"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
