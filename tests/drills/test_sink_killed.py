"""The sink in real processes that are killed with SIGKILL in the middle of a write: a repeated
write, a restarted query, and tasks that another executor takes over, put nothing less than all.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinesis_spout.testing import slow
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY, ServedFake
from tests.support.shell.wheel import separate_executors
from tests.support.spark import sink_job_under_test
from tests.support.spark.job_process import ROOT, JobProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark
RECORDS, FILES = 20_000, 2
STREAM = "orders"


@pytest.fixture
def orders(fake_kinesis: ServedFake) -> ServedFake:
    """A stream whose service takes its time, so that a write can be killed in its middle."""
    fake_kinesis.model.create(STREAM, shards=4)
    fake_kinesis.model.faults.add(slow(0.25), operation="PutRecords", times=None)
    return fake_kinesis


def expected() -> set[bytes]:
    return {b"record %d" % number for number in range(RECORDS)}


def found(orders: ServedFake) -> Counter[bytes]:
    """How often each record is on the stream."""
    return Counter(
        record.data
        for shard in orders.model.shards(STREAM)
        for record in orders.model.records(STREAM, shard.shard_id)
    )


@pytest.fixture
def job(orders: ServedFake, tmp_path: Path) -> dict[str, Any]:
    rows = tmp_path / "rows"
    rows.mkdir()
    for file in range(FILES):
        numbers = range(file * RECORDS // FILES, (file + 1) * RECORDS // FILES)
        data = [b"record %d" % number for number in numbers]
        keys = [f"key {number % 100}" for number in numbers]
        table = pa.table({"data": pa.array(data, pa.binary()), "partitionKey": keys})
        pq.write_table(table, rows / f"{file}.parquet")
    return {
        "master": "local[2,4]",
        "rows": str(rows),
        "sink": {
            "streamName": STREAM,
            "endpointUrl": orders.endpoint_url,
            "region": REGION,
            "awsAccessKeyId": ACCESS_KEY,
            "awsSecretAccessKey": SECRET_KEY,
            "requestsInFlight": "2",
        },
    }


@pytest.fixture(params=["batch", "stream"])
def process(
    request: pytest.FixtureRequest, job: dict[str, Any], tmp_path: Path
) -> Iterator[JobProcess]:
    """The job as a batch and as a query, not started yet."""
    if request.param == "stream":
        job["checkpoint"] = str(tmp_path / "checkpoint")
    process = JobProcess(job, tmp_path, program=sink_job_under_test.__file__)
    yield process
    if process.process is not None:
        process.kill()


def puts_records(process: psutil.Process, orders: ServedFake) -> bool:
    """Whether it has a connection to the service."""
    port = urlsplit(orders.endpoint_url).port
    with suppress(psutil.Error):  # it has ended by itself
        return any(one.raddr[1:] == (port,) for one in process.net_connections())
    return False


def children_of(process: JobProcess) -> list[psutil.Process]:
    assert process.process is not None
    return psutil.Process(process.process.pid).children(recursive=True)


def kill_putting_workers(process: JobProcess, orders: ServedFake) -> int:
    """Send SIGKILL to the Python workers that put records. Returns how many."""
    workers = [child for child in children_of(process) if puts_records(child, orders)]
    for worker in workers:
        with suppress(psutil.Error):
            worker.kill()
    return len(workers)


def kill_putting_executor(process: JobProcess, orders: ServedFake) -> int:
    """Send SIGKILL to the JVM of an executor whose Python workers put records. Returns how many
    were killed, at most one.
    """
    for child in children_of(process):
        with suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()) and any(
                puts_records(worker, orders) for worker in child.children(recursive=True)
            ):
                child.kill()
                return 1
    return 0


def in_the_middle(orders: ServedFake, beyond: int = 0) -> bool:
    return beyond < sum(found(orders).values()) < RECORDS


def killed_in_the_middle(
    kill: Callable[[JobProcess, ServedFake], int],
    process: JobProcess,
    orders: ServedFake,
    beyond: int,
) -> bool:
    return in_the_middle(orders, beyond) and kill(process, orders) > 0


def test_tasks_whose_workers_are_killed_put_all_when_they_are_run_again(
    orders: ServedFake, process: JobProcess
) -> None:
    """Twice: what is killed the second time is already a repetition."""
    process.start()
    for beyond in (0, 3_000):
        killed = partial(killed_in_the_middle, kill_putting_workers, process, orders, beyond)
        process.wait_until(killed, "put records")
    assert len(found(orders)) < RECORDS
    assert process.wait() == 0, process.tail()
    assert set(found(orders)) == expected()


def test_a_driver_that_is_killed_puts_all_when_it_is_started_again(
    orders: ServedFake, process: JobProcess
) -> None:
    """With all of its processes. A query goes on with the batch that it was in."""
    process.start()
    process.wait_until(lambda: in_the_middle(orders), "put records")
    process.kill()
    before = found(orders)
    assert 0 < len(before) < RECORDS
    process.start()
    assert process.wait() == 0, process.tail()
    after = found(orders)
    assert set(after) == expected()
    assert all(after[data] >= count for data, count in before.items())


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_tasks_of_an_executor_that_is_killed_put_all_on_another_one(
    orders: ServedFake, job: dict[str, Any], kind: str, wheel: Path, tmp_path: Path
) -> None:
    """The executor's JVM, twice: the second time with tasks that are a repetition already."""
    checkpoint = {"checkpoint": str(tmp_path / "checkpoint")} if kind == "stream" else {}
    process = JobProcess(
        job | separate_executors(wheel) | checkpoint,
        tmp_path,
        env={"PYTHONPATH": f"{wheel}:{ROOT}"},
        program=sink_job_under_test.__file__,
    )
    process.start()
    try:
        for beyond in (0, 5_000):
            killed = partial(killed_in_the_middle, kill_putting_executor, process, orders, beyond)
            process.wait_until(killed, "put records")
        assert len(found(orders)) < RECORDS
        assert process.wait() == 0, process.tail()
    finally:
        process.kill()
    counts = found(orders)
    assert set(counts) == expected()
    duplicates = counts.total() - len(counts)
    print(f"{kind}: {duplicates} duplicates of {RECORDS} records")  # noqa: T201  # pytest -rP shows it
