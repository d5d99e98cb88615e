"""The job on executors in processes of their own, reading LocalStack: every start, every kind of
resharding, odd records.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.clock import SystemClock
from tests.support.kinesis.services import create_stream, wait_until_active
from tests.support.spark.source import APPLICATION, STREAM, StreamUnderTest, ids_of
from tests.support.spark.spark_cluster import QueryFailedError, SparkCluster, rows_in
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.emulator]
MIB = 1024 * 1024


@dataclass
class Job:
    """An application that reads the stream into `out`; tests stop and start it."""

    cluster: SparkCluster
    stream: StreamUnderTest
    folder: Path

    def order(self, **changes: Any) -> dict[str, Any]:
        """The order for the cluster. Each application name has output and a checkpoint location of
        its own.
        """
        batches, trigger = changes.pop("batches", None), changes.pop("trigger", None)
        fields = self.stream.fields(
            **({"idle_wait": "1s", "shard_refresh_interval": "200ms"} | changes)
        )
        place = self.folder / fields["application"]
        place.mkdir(exist_ok=True)
        job = {"source": fields, "out": str(place / "out"), "checkpoint": str(place / "checkpoint")}
        return job | {
            "batches": batches,
            "trigger": trigger,
            "stop": str(place / f"stop-{uuid.uuid4().hex}"),
        }

    @contextmanager
    def running(self, **changes: Any) -> Iterator[None]:
        """Run it at a trigger of a second, until the end of the with statement."""
        order = self.order(trigger="1 second", **changes)
        self.cluster.begin(order)
        try:
            yield
        finally:
            Path(order["stop"]).touch()
            self.cluster.end()

    def read(self, **changes: Any) -> list[str]:
        """Run it until it is caught up, or for `batches`; all rows that it has read by then."""
        self.cluster.run(self.order(**changes))
        return ids_of(self.rows(changes.get("application", APPLICATION)))

    def rows(self, application: str = APPLICATION) -> list[dict[str, Any]]:
        return rows_in(self.folder / application / "out")

    def check(self) -> None:
        """Every record once, no child before the end of its parents, and checkpoints at
        the tips.
        """
        rows = self.rows()
        assert sorted(ids_of(rows)) == sorted(self.stream.ids())
        assert self.stream.checkpoints() == self.stream.tips()
        batches: dict[str, list[int]] = {}
        for row in rows:
            batches.setdefault(row["shardId"], []).append(row["batch"])
        for child, state in self.stream.states().items():
            for parent in state.parents:
                assert max(batches.get(parent, [-1])) < min(batches.get(child, [1 << 30])), (
                    f"{child} came before {parent}'s end"
                )


@pytest.fixture
def job(spark_cluster: SparkCluster, localstack_orders: StreamUnderTest, tmp_path: Path) -> Job:
    return Job(spark_cluster, localstack_orders, tmp_path)


def resharded(stream: StreamUnderTest, *changes: str) -> None:
    """For each change: split the first open shard or merge two, wait for it, and put
    forty records.
    """
    for change in changes:
        if change == "split":
            stream.split()
        elif change == "merge":
            stream.merge()
        else:
            stream.client.update_shard_count(
                StreamName=STREAM, TargetShardCount=int(change), ScalingType="UNIFORM_SCALING"
            )
        wait_until_active(stream.client, STREAM)
        stream.put(40)


# starts -------------------------------------------------------------------------------------------
def test_every_starting_position_gives_what_it_says(job: Job) -> None:
    """TRIM_HORIZON, a time, at and after a number; each in an application of its own."""
    job.stream.put(40)
    first = job.stream.ids()
    SystemClock().sleep(1.1)  # the emulator compares times in whole seconds
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    SystemClock().sleep(1.1)
    job.stream.put(40)
    shard, numbers = min(job.stream.records.items())
    others = {one for one in job.stream.ids() if not one.startswith(shard)}
    from_fifth = others | {f"{shard}:{number}" for number in numbers[5:]}

    assert set(job.read(application="all", starting_position="TRIM_HORIZON")) == job.stream.ids()
    assert set(job.read(application="time", starting_position=now)) == job.stream.ids() - first
    at = {"default": "TRIM_HORIZON", shard: f"AT:{numbers[5]}"}
    assert set(job.read(application="at", starting_position=at)) == from_fifth
    after = {"default": "TRIM_HORIZON", shard: f"AFTER:{numbers[4]}"}
    assert set(job.read(application="after", starting_position=after)) == from_fifth


# resharding ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "changes",
    [("split",), ("merge",), ("split", "merge", "split"), ("4", "2", "1")],
    ids=["split", "merge", "split, merge, split", "up and down"],
)
def test_a_reshard_while_it_is_down_is_followed(job: Job, changes: tuple[str, ...]) -> None:
    """Also over several generations."""
    job.stream.put(40)
    assert sorted(job.read()) == sorted(job.stream.ids())
    resharded(job.stream, *changes)
    job.read()
    job.check()


def test_reshards_while_it_runs_are_followed(job: Job) -> None:
    """Split, merge and both directions of UpdateShardCount, at a trigger of a second, with records
    in between.
    """
    job.stream.put(40)
    with job.running():
        resharded(job.stream, "split", "merge", "4", "2")
        wait_until(lambda: len(job.rows()) >= len(job.stream.ids()), timeout_s=60)
    job.read()
    job.check()


def test_a_stream_recreated_under_its_name_is_refused_with_what_to_do(job: Job) -> None:
    job.stream.put(20)
    job.read()
    job.stream.client.delete_stream(StreamName=STREAM)
    wait_until(lambda: STREAM not in job.stream.client.list_streams()["StreamNames"])
    create_stream(job.stream.client, STREAM, shards=1)
    job.stream.put(5)
    with pytest.raises(QueryFailedError, match="kinesis-spout reset"):
        job.read()


# records and answers ------------------------------------------------------------------------------
def test_odd_records_come_through_byte_for_byte(job: Job) -> None:
    """Empty, binary, of one mebibyte, with partition keys of any script."""
    records = {
        "empty": b"",
        "binary": bytes(range(256)) * 3,
        "largest": b"x" * (MIB - len("largest")),
        "\u0448\u0430\u0440\u0434 \U0001f600 \u65e5\u672c": b"unicode",
    }
    for key, data in records.items():
        job.stream.client.put_record(StreamName=STREAM, PartitionKey=key, Data=data)
    job.read()
    assert {row["partitionKey"]: row["data"] for row in job.rows()} == records
