"""The sink in a real process that is killed with SIGKILL in the middle of a write: a repeated write
and a restarted query put nothing less than all.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinesis_spout.testing import slow
from tests.support.kinesis.services import ServedFake, options_of
from tests.support.spark import sink_job_under_test
from tests.support.spark.job_process import JobProcess

if TYPE_CHECKING:
    from pathlib import Path

RECORDS, FILES = 20_000, 2
STREAM = "orders"


def found(orders: ServedFake) -> Counter[bytes]:
    """How often each record is on the stream."""
    return Counter(
        record.data
        for shard in orders.model.shards(STREAM)
        for record in orders.model.records(STREAM, shard.shard_id)
    )


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_driver_that_is_killed_puts_all_when_it_is_started_again(
    fake_kinesis: ServedFake, tmp_path: Path, kind: str
) -> None:
    """With all of its processes. A query goes on with the batch that it was in. The service takes
    its time, so that the write can be killed in its middle.
    """
    fake_kinesis.model.create(STREAM, shards=4)
    fake_kinesis.model.faults.add(slow(0.25), operation="PutRecords", times=None)
    rows = tmp_path / "rows"
    rows.mkdir()
    data = [b"record %d" % number for number in range(RECORDS)]
    for file in range(FILES):
        keys = [f"key {number % 100}" for number in range(RECORDS // FILES)]
        columns = {"data": pa.array(data[file::FILES], pa.binary()), "partitionKey": keys}
        pq.write_table(pa.table(columns), rows / f"{file}.parquet")
    sink = {
        "streamName": STREAM,
        **options_of(fake_kinesis.endpoint_url),
        "requestsInFlight": "2",
    }
    job = {"master": "local[2,4]", "rows": str(rows), "sink": sink}
    if kind == "stream":
        job["checkpoint"] = str(tmp_path / "checkpoint")
    process = JobProcess(job, tmp_path, program=sink_job_under_test.__file__)
    process.start()
    try:
        process.wait_until(lambda: 0 < found(fake_kinesis).total() < RECORDS, "put records")
        process.kill()
        before = found(fake_kinesis)
        assert 0 < len(before) < RECORDS
        process.start()
        assert process.wait() == 0, process.tail()
    finally:
        process.kill()
    after = found(fake_kinesis)
    assert set(after) == set(data)
    assert all(after[one] >= count for one, count in before.items())
