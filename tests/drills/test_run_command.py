"""`kinesis-spout run` against a local Kinesis: every sink, a user's function, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from tests.support.html.parsed_page import get
from tests.support.kinesis.services import (
    SECRET_KEY,
    create_stream,
    kinesis_client,
    words_of,
)
from tests.support.shell.command_line import run_cli, running_cli
from tests.support.spark.session import COMMAND_OPTIONS
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
COUNT = 60


@dataclass(frozen=True)
class Orders:
    """A stream with `COUNT` records, and the options that name it."""

    stream: str
    arguments: tuple[str, ...]


@pytest.fixture
def orders(moto_endpoint: str, zookeeper_chroot: str) -> Orders:
    stream = f"orders-{uuid.uuid4().hex}"
    with kinesis_client(moto_endpoint) as client:
        create_stream(client, stream, shards=2)
        records = [
            {"Data": json.dumps({"id": n}).encode(), "PartitionKey": f"key-{n}"}
            for n in range(COUNT)
        ]
        client.put_records(StreamName=stream, Records=records)
    named = ("--stream", stream, "--application", "etl", "--zookeeper", zookeeper_chroot)
    start = ("--from", "TRIM_HORIZON")
    return Orders(stream, (*named, *start, *words_of(moto_endpoint), *COMMAND_OPTIONS))


def ids_in(path: Path) -> list[int]:
    found: list[int] = []
    for file in sorted(path.rglob("*.parquet")):
        with pq.ParquetFile(file) as parquet:
            found += [
                json.loads(data)["id"]
                for data in parquet.read(columns=["data"]).column("data").to_pylist()
            ]
    return sorted(found)


def test_parquet_gets_every_record_once_and_a_second_run_adds_nothing(
    orders: Orders, tmp_path: Path
) -> None:
    """Spark's output is in the named log file, and nowhere else."""
    arguments = ("run", *orders.arguments, "--sink", "parquet", "--path", "out", "--available-now")
    first = run_cli(*arguments, "--log-file", "spark[x].log", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert f"{COUNT} rows" in first.stderr.splitlines()[-1]
    assert first.stdout == ""
    assert "spark[x].log" in first.stderr
    assert "WARN" not in first.stderr
    assert "WARN" in (tmp_path / "spark[x].log").read_text()
    assert SECRET_KEY not in first.stderr + (tmp_path / "spark[x].log").read_text()
    assert ids_in(tmp_path / "out") == list(range(COUNT))
    assert run_cli(*arguments, cwd=tmp_path).returncode == 0
    assert ids_in(tmp_path / "out") == list(range(COUNT))


def test_json_through_a_users_function_goes_to_a_directory_a_batch(
    orders: Orders, tmp_path: Path
) -> None:
    """A function that fails is one sentence, and loses nothing."""
    (tmp_path / "job.py").write_text(
        "def broken(df):\n    raise ValueError('no rates yet')\n\n"
        "def texts(df):\n    return df.selectExpr(\"cast(data as string) text\", 'shardId')\n"
    )
    sink = ("--sink", "json", "--path", "out", "--available-now")
    limit = ("--option", "maxRecordsPerShard=20")
    arguments = ("run", *orders.arguments, *sink, *limit, "--process")
    failed = run_cli(*arguments, "job:broken", cwd=tmp_path)
    assert failed.returncode == 1
    assert "error: the query failed: ValueError: no rates yet\n" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "Traceback" in (tmp_path / "kinesis-spout.log").read_text()
    ended = run_cli(*arguments, "job:texts", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    rows = [
        json.loads(line)
        for file in (tmp_path / "out").glob("batch=*/*.json")
        for line in file.read_text().splitlines()
    ]
    assert sorted(json.loads(row["text"])["id"] for row in rows) == list(range(COUNT))
    assert len(list((tmp_path / "out").glob("batch=*"))) > 1


def test_ctrl_c_stops_it_cleanly_and_another_run_continues_at_once(
    orders: Orders, tmp_path: Path
) -> None:
    """Its metrics were served meanwhile, at a free port that is said."""
    arguments = ("run", *orders.arguments, "--sink", "parquet", "--path", "out")
    note = "Prometheus can read the metrics at "
    series = (
        f'kinesis_spout_stream_records_acked_total{{application="etl",stream="{orders.stream}"}} '
        f"{float(COUNT)}"
    )
    measured = (*arguments, "--metrics-port", "0")
    with running_cli(*measured, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        url = next(line for line in process.stderr if line.startswith(note))
        url = url.removeprefix(note).strip()
        assert any(f"{COUNT} rows" in line for line in process.stderr)
        wait_until(lambda: series in get(url, urlsplit(url).path)[1], 120)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert rest.splitlines()[-1].startswith("stopped after")
    assert "error" not in rest
    again = run_cli(*arguments, "--available-now", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert ids_in(tmp_path / "out") == list(range(COUNT))
