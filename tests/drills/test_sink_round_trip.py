"""Ten thousand random records through the sink and back through the source: nothing is lost,
changed or added, on LocalStack and with executors in processes of their own.
"""

from __future__ import annotations

import uuid
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.kinesis.services import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    create_stream,
    kinesis_client,
)
from tests.support.shell.wheel import separate_executors
from tests.support.spark import sink_job_under_test
from tests.support.spark.job_process import ROOT, JobProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.emulator, pytest.mark.localstack]
COUNT = 10_000
LETTERS = 'abc \u00e4\u20ac\U0001f600"\\\n'

Row = tuple[bytes, str]


def random_rows(random: Random) -> list[Row]:
    """Payloads of any bytes, none to 2 KB and some to 100 KB; keys of any script, many of them
    several times.
    """
    keys = ["".join(random.choices(LETTERS, k=random.randint(1, 30))) for _ in range(500)]
    sizes = [random.choice((0, 1, 10, 100, 2_000)) for _ in range(COUNT - 20)] + [100_000] * 20
    random.shuffle(sizes)
    return [(random.randbytes(size), random.choice(keys)) for size in sizes]


def test_ten_thousand_random_records_come_back_as_they_were(
    localstack_endpoint: str, zookeeper_chroot: str, wheel: Path, tmp_path: Path
) -> None:
    """In a batch read and in a query, on two executors."""
    rows = random_rows(Random(15))  # noqa: S311  # not a secret
    data, keys = ([row[column] for row in rows] for column in (0, 1))
    table = pa.table({"data": pa.array(data, pa.binary()), "partitionKey": keys})
    pq.write_table(table, tmp_path / "rows.parquet")
    name = f"round-trip-{uuid.uuid4().hex}"
    with kinesis_client(localstack_endpoint) as client:
        create_stream(client, name, shards=4)
        job: dict[str, Any] = {
            **separate_executors(wheel),
            "rows": str(tmp_path / "rows.parquet"),
            "out": str(tmp_path / "out"),
            "query": {
                "applicationName": "round-trip",
                "zookeeper": zookeeper_chroot,
                "startingPosition": "TRIM_HORIZON",
            },
            "sink": {
                "streamName": name,
                "endpointUrl": localstack_endpoint,
                "region": REGION,
                "awsAccessKeyId": ACCESS_KEY,
                "awsSecretAccessKey": SECRET_KEY,
            },
        }
        path = f"{wheel}:{ROOT}"
        program = sink_job_under_test.__file__
        process = JobProcess(job, tmp_path, env={"PYTHONPATH": path}, program=program)
        process.start()
        assert process.wait(300) == 0, process.tail()
        shards = {shard["ShardId"] for shard in client.list_shards(StreamName=name)["Shards"]}
        client.delete_stream(StreamName=name)
    for reader in ("batch", "query"):
        table = pq.read_table(tmp_path / "out" / reader)
        found = table.select(["data", "partitionKey", "shardId"]).to_pylist()
        assert len(found) == COUNT
        assert sorted((row["data"], row["partitionKey"]) for row in found) == sorted(rows)
        assert {row["shardId"] for row in found} == shards
