"""How long a record is on its way: from its put to a task's row, and to a written batch.

    python benchmarks/latency.py [--puts N] [--shards S] [--option NAME=VALUE]...
        [--conf KEY=VALUE]... [--json]

A query on `local[2]` with `foreachBatch` waits at the tip. Now and then a server of its own process
(FakeKinesis) gets 20 records at once; then four times a second for a while.
The query runs twice: at defaults, and with `probeInterval=200ms`.

`row in task` ends when Spark takes the row from its task, `visible` when `foreachBatch` has
collected the batch. The stages between them are read from what the parts leave behind anyway: the
server's log of calls, the znodes' and the checkpoint files' times, Spark's event log. So nothing in
the source is timed. All clocks are one machine's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from kinesis_spout.clock import SystemClock
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from spark_job import register
from state.zookeeper import embedded as embedded_zookeeper
from state.zookeeper.servers import ConnectString

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from kinesis_spout.testing.service.answers import GetRecordsAnswer
    from kinesis_spout.testing.service.requests import GetRecords

RECORDS, WARM_UP, PATIENCE_S = 20, 4, 60
GOLDEN_RATIO = (1 + 5**0.5) / 2
STEADY_PUTS, STEADY_PAUSE_S = 40, 0.25
QUERIES = {"defaults": {}, "probeInterval=200ms": {"probeInterval": "200ms"}}
ACCESS = {
    "region": "us-east-1",
    "awsAccessKeyId": "benchmark",
    "awsSecretAccessKey": "benchmark",
    "startingPosition": "TRIM_HORIZON",
}
STAGES = {
    "seen": "until a probe sees it",
    "planned": "the plan is in ZooKeeper",
    "logged": "Spark's offset log",
    "submitted": "planning the query",
    "launched": "the first task starts",
    "fetched": "Python worker, log read, GetRecords",
    "appended": "decoded, appended to the log",
    "row": "row in Spark",
    "visible": "batch collected",
    "committed": "Spark's commit log",
}


class WatchedKinesis(FakeKinesis):
    """Notes when GetRecords answers with records, and whether to a probe."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[float, bool]] = []

    def get_records(self, request: GetRecords) -> GetRecordsAnswer:
        answer = super().get_records(request)
        if answer.records:
            self.answers.append((now_ms(), request.limit == 1))
        return answer


def serve(streams: list[str], shards: int, pipe: Connection) -> None:
    """The server's process. For each stream's name that comes, it puts 20 records; for "", it sends
    the answers that had records. It ends when the pipe closes.
    """
    fake = WatchedKinesis()
    for stream in streams:
        fake.create(stream, shards=shards)
    with FakeKinesisServer(fake) as server:
        pipe.send(server.endpoint_url)
        while True:
            try:
                stream = pipe.recv()
            except EOFError:
                return
            if not stream:
                pipe.send(fake.answers)
                continue
            put_ms = round(now_ms(), 1)
            for n in range(RECORDS):
                fake.put(stream, f"key {n}", str(put_ms).encode())
            pipe.send(put_ms)


def now_ms() -> float:
    return time.time_ns() / 1_000_000


@dataclass
class Batch:
    """The times of one put's batch, in ms since 1970, by stage."""

    put_ms: float
    number: int
    times_ms: dict[str, float] = field(default_factory=dict)

    def since_put(self, stage: str) -> float:
        return self.times_ms[stage] - self.put_ms


class Query:
    """A running query, and the batches that it has collected."""

    def __init__(
        self, spark: SparkSession, options: dict[str, str], checkpoint: Path, zookeeper: str
    ) -> None:
        self.batches: dict[float, Batch] = {}
        self.came = threading.Condition()
        self._checkpoint = checkpoint
        self._znodes = (
            f"/kinesis-spout/{options['applicationName']}/{options['streamName']}/batches"
        )
        self._kazoo = KazooClient(hosts=ConnectString.parse(zookeeper).hosts())
        self._kazoo.start()
        rows = spark.readStream.format("kinesis").options(zookeeper=zookeeper, **options).load()
        self.running: StreamingQuery = (
            rows.selectExpr(
                "cast(cast(data as string) as double) put_ms",
                "java_method('java.lang.System', 'currentTimeMillis') row_ms",
            )
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def _on_batch(self, frame: DataFrame, number: int) -> None:
        rows = frame.collect()
        visible_ms = now_ms()
        with self.came:
            for put_ms in {row.put_ms for row in rows}:
                batch = self.batches.setdefault(put_ms, Batch(put_ms, number))
                mine = [float(row.row_ms) for row in rows if row.put_ms == put_ms]
                batch.times_ms |= {"row": max(mine), "visible": visible_ms}
            self.came.notify_all()

    def wait_for(self, put_ms: float) -> Batch:
        with self.came:
            if not self.came.wait_for(lambda: put_ms in self.batches, timeout=PATIENCE_S):
                raise SystemExit(f"no batch within {PATIENCE_S} s: {self.running.exception()}")
            return self.batches[put_ms]

    def complete(self, batch: Batch) -> None:
        """Add what the batch left in ZooKeeper and in the checkpoint. To call a moment after it,
        and before the next one, with which its znodes go.
        """
        offsets = self._checkpoint / "offsets" / str(batch.number)
        plan = json.loads(offsets.read_text().splitlines()[2])["plan"]
        commits = self._checkpoint / "commits" / str(batch.number)
        tasks = self._kazoo.get_children(f"{self._znodes}/{plan}")
        ends = [self._kazoo.exists(f"{self._znodes}/{plan}/{task}/end") for task in tasks]
        batch.times_ms |= {
            "planned": float(self._kazoo.exists(f"{self._znodes}/{plan}").ctime),
            "logged": offsets.stat().st_mtime * 1000,
            "appended": float(max(end.ctime for end in ends if end is not None)),
            "committed": commits.stat().st_mtime * 1000,
        }

    def stop(self) -> None:
        self.running.stop()
        self._kazoo.stop()
        self._kazoo.close()


def add_answers(batches: list[Batch], answers: list[tuple[float, bool]]) -> None:
    """When a probe, and then the tasks, got a batch's records."""
    for batch in batches:
        mine = [(ms, probe) for ms, probe in answers if batch.put_ms <= ms < batch.times_ms["row"]]
        # A busy shard is not probed.
        probes = [ms for ms, probe in mine if probe]
        batch.times_ms["seen"] = min(probes, default=batch.put_ms)
        batch.times_ms["fetched"] = max(ms for ms, probe in mine if not probe)


def add_jobs(batches: list[Batch], run_id: str, events: Path) -> None:
    """When Spark submitted each batch's job and launched its first task, from its event log."""
    by_number = {str(batch.number): batch for batch in batches}
    of_stage: dict[int, Batch] = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            properties = event["Properties"]
            batch = by_number.get(properties.get("streaming.sql.batchId", ""))
            if batch is not None and properties.get("spark.jobGroup.id") == run_id:
                batch.times_ms.setdefault("submitted", float(event["Submission Time"]))
                of_stage |= dict.fromkeys(event["Stage IDs"], batch)
        elif event["Event"] == "SparkListenerTaskStart" and event["Stage ID"] in of_stage:
            times_ms = of_stage[event["Stage ID"]].times_ms
            times_ms.setdefault("launched", float(event["Task Info"]["Launch Time"]))


def pairs(texts: list[str]) -> dict[str, Any]:
    return dict(text.split("=", 1) for text in texts)


def percentiles(batches: list[Batch], stage: str) -> dict[str, int]:
    values = sorted(batch.since_put(stage) for batch in batches)
    at_95 = min(len(values) - 1, int(len(values) * 0.95))
    return {"p50_ms": round(statistics.median(values)), "p95_ms": round(values[at_95])}


def summary(run: Run) -> dict[str, Any]:
    batches = run.single
    found: dict[str, Any] = {
        "puts": len(batches),
        "row": percentiles(batches, "row"),
        "visible": percentiles(batches, "visible"),
        "steady_row": percentiles(run.steady, "row"),
        "steady_visible": percentiles(run.steady, "visible"),
    }
    stages = list(STAGES)
    found["stages_ms"] = {
        stage: round(
            statistics.median(
                batch.since_put(stage) - (batch.since_put(before) if before else 0.0)
                for batch in batches
            )
        )
        for before, stage in zip([None, *stages], stages, strict=False)
    }
    return found


def session(directory: Path, conf: dict[str, Any]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    events = directory / "events"
    events.mkdir()
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    return SparkSession.builder.master("local[2]").config(map=settings | conf).getOrCreate()


@dataclass
class Run:
    """A query's run: the batches of single puts, after the warm-up, and those of steady ones."""

    run_id: str
    single: list[Batch]
    steady: list[Batch]


def put_all(query: Query, stream: str, puts: int, server: Connection) -> Run:
    batches = []
    for n in range(WARM_UP + puts):
        server.send(stream)
        batch = query.wait_for(server.recv())
        # Long after its commit and settling. The golden ratio spreads the moments evenly over the
        # intervals between two probes, so that few puts give a steady median.
        SystemClock().sleep(1.2 + GOLDEN_RATIO * n % 1)
        query.complete(batch)
        batches.append(batch)
    times_ms = []
    for _ in range(STEADY_PUTS):
        server.send(stream)
        times_ms.append(server.recv())
        SystemClock().sleep(STEADY_PAUSE_S)
    steady = [query.wait_for(put_ms) for put_ms in times_ms]
    query.stop()
    return Run(str(query.running.runId), batches[WARM_UP:], steady)


def measure(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    streams = [f"stream-{n}" for n in range(len(QUERIES))]
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(streams, options.shards, theirs), daemon=True
    )
    server.start()
    theirs.close()
    found: dict[str, Run] = {}
    try:
        always = {"applicationName": "latency", "endpointUrl": ours.recv(), **ACCESS}
        zookeeper = embedded_zookeeper.ensure_running(directory / "zookeeper")
        spark = session(directory, pairs(options.conf))
        register(spark)
        for stream, (name, special) in zip(streams, QUERIES.items(), strict=True):
            given = always | special | {"streamName": stream} | pairs(options.option)
            query = Query(spark, given, directory / stream, zookeeper)
            found[name] = put_all(query, stream, options.puts, ours)
        spark.stop()
        ours.send("")
        answers = ours.recv()
    finally:
        ours.close()
        server.join(10)
        embedded_zookeeper.stop(directory / "zookeeper")
    (events,) = (directory / "events").iterdir()
    for run in found.values():
        add_answers(run.single, answers)
        add_jobs(run.single, run.run_id, events)
    return {
        "benchmark": "latency",
        "records": RECORDS,
        "shards": options.shards,
        "queries": {name: summary(run) for name, run in found.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--puts", type=int, default=20, help="for each query")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark's")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kinesis-spout-benchmark-") as directory:
        found = measure(options, Path(directory))
    if options.json:
        print(json.dumps(found))
        return
    queries = found["queries"]
    print(f"{RECORDS} records at once, {found['shards']} shards, ms since the put: p50 / p95\n")
    print(f"{'':<42}" + "".join(f"{name:>24}" for name in queries))
    for key, what in {
        "row": "a put now and then: row in task",
        "visible": "visible",
        "steady_row": "four puts a second: row in task",
        "steady_visible": "visible",
    }.items():
        cells = [f"{of[key]['p50_ms']} / {of[key]['p95_ms']}" for of in queries.values()]
        print(f"{what:>42}" + "".join(f"{cell:>24}" for cell in cells))
    print("\nstages of the puts now and then, medians")
    for stage, what in STAGES.items():
        times = [of["stages_ms"][stage] for of in queries.values()]
        print(f"{what:>42}" + "".join(f"{ms:>24}" for ms in times))


if __name__ == "__main__":
    main()
