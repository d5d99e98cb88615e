"""A process that reads a stream to its end, keeps nothing, and prints how many bytes of payload it
read, and how far its memory rose meanwhile.

    python memory_of_reading.py source '{"stream": ...}'     fields of KinesisSource
    python memory_of_reading.py batch '{"streamName": ...}'  options of `spark.read`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from spark_job.batch_read.batch_reader import new_reader
from spark_job.data_source import KinesisStreamReader
from spark_job.executor import task_reader  # noqa: F401  # its memory is not the records'
from spark_job.kinesis_source import KinesisSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa


def source(fields: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows of one batch of the source, task after task."""
    reader = KinesisStreamReader(KinesisSource(**fields).query())
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        for partition in reader.partitions(start, end):
            yield from reader.read(partition)
    finally:
        reader.stop()


def batch(options: dict[str, str]) -> Iterator[pa.RecordBatch]:
    reader = new_reader(options, None)
    for partition in reader.partitions():
        yield from reader.read(partition)


def peak_bytes() -> int:
    """Of this process; `getrusage` counts what its parent had when it was forked."""
    status = Path("/proc/self/status").read_text("ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def read(batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    before = peak_bytes()
    read_bytes = 0
    for rows in batches:
        read_bytes += pc.sum(pc.binary_length(rows.column("data"))).as_py()
    return {"read": read_bytes, "risen": peak_bytes() - before}


if __name__ == "__main__":
    kind = {"source": source, "batch": batch}[sys.argv[1]]
    print(json.dumps(read(kind(json.loads(sys.argv[2])))))  # noqa: T201  # its answer
