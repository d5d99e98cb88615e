"""A job that reads, writes and has dead letters, each on a stream of its own, run as a process of
its own.

    python tests/support/spark/executors_elsewhere.py '<json>'

`source`: the fields of a `KinesisSource`, `letters`: those of a `DeadLetter` on stream `letters`,
`sink`: the options of the sink. The job reads the stream in a query in which `poison` fails, and
writes a row. With `keys`, options of a batch read, it writes what that reads instead, and
`answer.json` in `directory` has the number of its rows, and the variables of AWS that an executor
has, and where driver and executor imported our package from. `master`, `conf` and `pyFiles` as for
`spark_job_under_test`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_job import DeadLetter, KinesisSource, register
from tests.support.spark.spark_job_under_test import caught_up, session

if TYPE_CHECKING:
    from scheme import Record
    from spark_job import TrackedBatch


def run(job: dict[str, Any]) -> None:
    spark = session(job)
    register(spark)
    source = KinesisSource(**job["source"])
    poison = job["poison"].encode()

    def fail_poison(record: Record) -> dict[str, Any]:
        if record.data.startswith(poison):
            raise ValueError("it is poison")
        return {"data": record.data}

    def handle(batch: TrackedBatch) -> None:
        batch.map_records(fail_poison, "data BINARY").collect()

    letters = DeadLetter.to_stream("letters", **job["letters"])
    tracked = source.tracked(handle, dead_letter=letters, retry_limit=0)
    writer = source.read_stream(spark).writeStream.foreachBatch(tracked)
    caught_up(writer, f"{job['directory']}/checkpoint")

    rows = spark.createDataFrame([(b"data", "key")], "data BINARY, partitionKey STRING")
    if "keys" in job:
        rows = spark.read.format("kinesis").options(streamName=source.stream, **job["keys"]).load()
        ((variables, place),) = spark.sparkContext.parallelize([0], 1).map(_look).collect()
        places = [_look(0)[1], place]
        answer = {"rows": rows.count(), "variables": variables, "places": places}
        Path(job["directory"], "answer.json").write_text(json.dumps(answer))
    copied = rows.select("data", "partitionKey")
    copied.write.format("kinesis").options(**job["sink"]).mode("append").save()
    spark.stop()


def _look(_: int) -> tuple[dict[str, str], str]:
    import spark_job  # noqa: PLC0415  # on the executor

    variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return variables, str(spark_job.__file__)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
