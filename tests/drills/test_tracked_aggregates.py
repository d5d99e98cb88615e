"""Random aggregates in a tracked query on LocalStack, with executors in processes of their own: the
stream is resharded, and driver, executor and worker are killed, each in the middle.

Each user record states its own outcome, so the results are compared with what was put, one by one.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.aggregates.random_producer import RandomProducer
from tests.support.kinesis.services import wait_until_active
from tests.support.spark.job_process import JobProcess, rows_below
from tests.support.spark.source import STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.spark.source import StreamUnderTest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.emulator,
    pytest.mark.localstack,
    pytest.mark.timeout(900),
]
IN_A_PHASE = 90
LARGE, BAD = 500, 77
EXECUTOR, DAEMON = "CoarseGrainedExecutorBackend", "pyspark.daemon"


@pytest.fixture
def producer(localstack_orders: StreamUnderTest) -> RandomProducer:
    producer = RandomProducer(localstack_orders, random.Random(random.getrandbits(32)))  # noqa: S311
    producer.refresh()
    return producer


@pytest.fixture
def process(
    localstack_orders: StreamUnderTest, wheel: Path, tmp_path: Path
) -> Iterator[JobProcess]:
    """The job, not started yet."""
    job = job_of(localstack_orders, wheel, tmp_path)
    process = JobProcess(job, tmp_path, env={"PYTHONPATH": str(wheel)})
    yield process
    if process.process is not None:
        process.kill()


def test_every_user_record_has_its_outcome_over_reshards_and_kills(
    localstack_orders: StreamUnderTest,
    producer: RandomProducer,
    process: JobProcess,
    wheel: Path,
    tmp_path: Path,
) -> None:
    """The good ones are processed, with no attempt too many; the bad ones are dead-lettered alone;
    of what belongs to another shard nothing is seen. Driver and executors have imported the package
    from the shipped wheel.
    """
    stream = localstack_orders
    producer.put(IN_A_PHASE)
    one_of_many = producer.put_aggregate(LARGE, bad=BAD)
    process.start_until("sink-written")
    for reshard in (stream.split, stream.merge):
        reshard()
        wait_until_active(stream.client, STREAM)
        producer.put(IN_A_PHASE // 3)  # packed for the shards before the reshard
        producer.refresh()
        producer.put(IN_A_PHASE // 3)
    process.kill()
    process.start_again()
    for kill in (kill_executor, kill_worker):
        more = partial(has_more_files, tmp_path / "out", files_in(tmp_path / "out"))
        process.wait_until(more, "wrote another batch")
        process.wait_until(partial(kill, process), "ran a task")
    assert process.wait() == 0, process.tail()

    check(stream, producer, tmp_path)
    assert one_of_many in producer.of("always")
    assert producer.left_out
    assert producer.malformed
    places = json.loads((tmp_path / "places.json").read_text())
    assert len(places["executors"]) == 2
    assert all(wheel.name in place for place in [places["driver"], *places["imported"]])


def job_of(stream: StreamUnderTest, wheel: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "master": "local-cluster[2,1,1024]",
        "pyFiles": [str(wheel)],
        "conf": {
            "spark.executor.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
        "tracked": True,
        "source": stream.fields(max_records_per_shard=25, idle_wait="200ms"),
        "out": str(tmp_path / "out"),
        "dead": str(tmp_path / "dead"),
        "checkpoint": str(tmp_path / "checkpoint"),
    }


def check(stream: StreamUnderTest, producer: RandomProducer, tmp_path: Path) -> None:
    rows = rows_below(tmp_path / "out", "n", "attempt")
    assert {row["n"] for row in rows} == producer.of("good") | producer.of("twice")
    attempts = {(producer.kinds[row["n"]], row["attempt"]) for row in rows}
    assert attempts == {("good", 1), ("twice", 3)}

    letters = rows_below(tmp_path / "dead", "messageId", "attempts", "reason")
    tried = {(row["messageId"], row["reason"]) for row in letters if row["attempts"] > 1}
    assert tried == {
        (f"{producer.ids[n]}:4", f"ValueError: record {n} is poison") for n in producer.of("always")
    }
    malformed = {row["messageId"] for row in letters if row["attempts"] == 1}
    assert malformed == {f"{one}:1" for one in producer.malformed}
    assert len(letters) == len(tried) + len(malformed)

    states, still_open = stream.states(), {shard["ShardId"] for shard in stream.open_shards()}
    delivered = last_delivered(producer)
    for shard, tip in stream.tips().items():
        checkpoint = states[shard].checkpoint_text
        if shard in still_open:
            # What follows without any record to deliver may be read again by the next run.
            assert checkpoint is not None
            assert delivered.get(shard, 0) <= int(checkpoint.partition(".")[0]) <= int(tip)
        else:
            assert checkpoint == "SHARD_END"
    assert not any(state.unresolved for state in states.values())


def last_delivered(producer: RandomProducer) -> dict[str, int]:
    """The sequence number of the last record of each shard of which something is delivered."""
    found: dict[str, int] = {}
    for one in {*producer.ids.values(), *producer.malformed}:
        shard, number = one.split(":")[:2]
        found[shard] = max(found.get(shard, 0), int(number.partition(".")[0]))
    return found


def files_in(out: Path) -> int:
    return len(list(out.glob("*.parquet")))


def has_more_files(out: Path, count: int) -> bool:
    return files_in(out) > count


def executors_of(process: JobProcess) -> list[psutil.Process]:
    assert process.process is not None
    children = psutil.Process(process.process.pid).children(recursive=True)
    return [child for child in children if runs(child, EXECUTOR)]


def runs(process: psutil.Process, program: str) -> bool:
    with suppress(psutil.Error):  # it has ended by itself
        return any(program in word for word in process.cmdline())
    return False


def kill_executor(process: JobProcess) -> bool:
    """Send SIGKILL to the JVM of an executor, if there is one."""
    for executor in executors_of(process):
        executor.kill()
        return True
    return False


def kill_worker(process: JobProcess) -> bool:
    """Send SIGKILL to a Python worker of an executor, if there is one. Workers are forked by a
    daemon, the executor's child.
    """
    for executor in executors_of(process):
        with suppress(psutil.NoSuchProcess):
            for daemon in executor.children():
                for worker in daemon.children():
                    if runs(worker, DAEMON):
                        worker.kill()
                        return True
    return False
