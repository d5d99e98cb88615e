"""A program that stops a query, then the session of a second query, and starts a third one.

    python tests/support/spark/stopped_twice.py '<json>'

`source`: the fields of a `KinesisSource`. `answer.json` in `directory` has the owners of the
application after each stop, once there is none or `LIMIT_S` has passed.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_job import KinesisSource
from spark_job.process_services import open_store
from tests.support.spark.spark_job_under_test import session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT_S = 30.0


def run(job: dict[str, Any]) -> None:
    source = KinesisSource(**job["source"])

    def started() -> StreamingQuery:
        """A query that owns the application. Its stream has no records."""
        checkpoint = f"{job['directory']}/checkpoint"
        writer = source.read_stream(session(job)).writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).start()
        while not owners() and query.isActive:
            time.sleep(0.1)  # noqa: TID251  # nothing announces an owner
        return query

    def owners() -> list[str]:
        with closing(open_store(source.settings())) as store:
            return [str(owner) for owner in store.ownership.holders().values()]

    def owners_left() -> list[str]:
        deadline_s = time.monotonic() + LIMIT_S
        while (left := owners()) and time.monotonic() < deadline_s:
            time.sleep(0.1)  # noqa: TID251  # as above
        return left

    answer: dict[str, Any] = {}
    started().stop()
    answer["after query.stop()"] = owners_left()
    started()
    session(job).stop()
    answer["after spark.stop()"] = owners_left()
    query = started()
    answer["third query"] = query.isActive
    query.stop()
    session(job).stop()
    (Path(job["directory"]) / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
