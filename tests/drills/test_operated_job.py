"""A real Spark job that an operator pauses, resumes, and takes back in time."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from state.plan import PlanStatus
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.outcomes.tracked import numbers
from tests.support.shell.command_line import call_cli
from tests.support.spark.source import APPLICATION, STREAM
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.support.spark.source import StreamUnderTest

pytestmark = pytest.mark.spark


class OperatedJob:
    """A job with one checkpoint location, whose rows end up in `rows`, and commands beside it."""

    def __init__(self, spark: SparkSession, stream: StreamUnderTest, folder: Path) -> None:
        self._spark = spark
        self._stream = stream
        self._folder = folder
        self.rows: list[int] = []

    def start(self, **trigger: bool) -> StreamingQuery:
        frame = self._stream.source().read_stream(self._spark)
        writer = frame.writeStream.foreachBatch(lambda rows, _: self.rows.extend(numbers(rows)))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def command(self, *words: str, endpoint: bool = False) -> list[str]:
        """The lines that the command prints, which is to succeed."""
        place = ("--application", APPLICATION, "--stream", STREAM)
        service = ("--endpoint-url", self._stream.endpoint_url, "--region", REGION)
        ended = call_cli(
            *words,
            *place,
            "--zookeeper",
            self._stream.zookeeper,
            *(service if endpoint else ()),
            cwd=self._folder,
            AWS_ACCESS_KEY_ID=ACCESS_KEY,
            AWS_SECRET_ACCESS_KEY=SECRET_KEY,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    def has_read(self, count: int) -> None:
        wait_until(lambda: len(self.rows) >= count, 60)

    def is_settled(self) -> bool:
        return self._stream.checkpoints() == self._stream.tips()


def test_a_job_is_paused_resumed_and_taken_back_to_the_pause(
    spark: SparkSession, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """The pause settles the last batch, and its end is where the history goes back to: the records
    after it come again, those before it do not.
    """
    job = OperatedJob(spark, stream, tmp_path)
    before, after = set(range(10)), set(range(10, 15))
    stream.put(len(before))
    query = job.start()
    try:
        job.has_read(len(before))
        assert job.command("pause", "--wait")[-1].startswith("at rest: ")
        assert job.is_settled()
        with closing(
            ZookeeperStateStore(stream.zookeeper, application=APPLICATION, stream=STREAM)
        ) as store:
            pointer = store.plans.pointer()
            assert pointer is not None
            assert pointer.status is PlanStatus.SETTLED
            stream.put(len(after))
            # The job writes its history meanwhile, some ten seconds after its start.
            wait_until(lambda: len(store.history.index().marks) > 1)
            assert store.plans.pointer() == pointer
        assert sorted(job.rows) == sorted(before)
        paused = json.loads("\n".join(job.command("checkpoint", "history", "--json")))[-1]["time"]
        job.command("resume")
        job.has_read(len(before | after))
        wait_until(job.is_settled, 60)
    finally:
        query.stop()
    assert sorted(job.rows) == sorted(before | after)
    moved = job.command("checkpoint", "rewind", "--to", paused, "--yes", endpoint=True)
    assert moved[-1] == "moved"
    repeats = [int(line.split()[1]) for line in moved if line.startswith("  repeats")]
    assert sum(repeats) == len(after)
    job.rows.clear()
    assert job.start(availableNow=True).awaitTermination(60)
    assert sorted(job.rows) == sorted(after)
    assert job.is_settled()
