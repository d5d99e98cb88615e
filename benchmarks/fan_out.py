"""What a Spark query gets of a stream that many consumers read, by polling and by enhanced fan-out.

    python benchmarks/fan_out.py [--consumers N] [--shards S] [--seconds T] [--json]

The server (FakeKinesis, with the service's limits of a shard: 2 MB and 5 reads a second to all that
poll it, 2 MB a second to each subscription) is a process of its own, and holds a backlog that
nobody can read in the time. All consumers but one are pollers in another process, which call once a
second, as the KCL does, also after they were throttled. The last one is the Spark source's driver
and its tasks, one after the other, without Spark. It reads for `--seconds`, once by polling and
once by subscription, beside the same pollers.

- `mb_per_s`: payload that its tasks gave, by shard and second. `of_limit`: as a part of 2 MiB.
- `others_mb_per_s`: what each of the pollers beside it gets, on average. A page may be 10 MB, after
  which the shard refuses reads for five seconds; so in a short run one poller has much, and others
  have nothing.
- `pushed`: the part of its records that came by subscription.
- `efo_to_others`: what is read by subscription, by what each of the pollers beside it gets. Only
  this and `of_limit` say something elsewhere.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, ReadRate, StreamRef
from kinesis_spout.errors import KinesisError
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.shard_getter import FetchPostponedError, KinesisShardGetter
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer, FakeKinesisSettings
from spark_job import KinesisSource
from spark_job.driver.coordinator import Coordinator
from spark_job.driver.query_driver import QueryDriver, offset_of
from spark_job.executor.task_reader import read_task
from spark_job.process_services import ProcessServices
from spark_job.settings import QuerySettings
from state.memory_store import MemoryBackend, MemoryStateStore
from state.position import TRIM_HORIZON

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

STREAM, APPLICATION = "orders", "benchmark"
LIMIT_BYTES_PER_S = 2 * 1024 * 1024
RECORD_BYTES = 10_000
POLL_S = 1.0  # the KCL's default, also after a call that was throttled
MODES: dict[str, dict[str, str]] = {
    "polling": {},
    "efo": {"read_mode": "efo", "consumer_name": "benchmark"},
}
WARM_UP_S = 3.0
CLOCK = SystemClock()


def aws(endpoint_url: str) -> AwsConfig:
    return AwsConfig(
        region="us-east-1",
        endpoint_url=endpoint_url,
        access_key_id="benchmark",
        secret_access_key="benchmark",  # noqa: S106  # FakeKinesis takes any
    )


def serve(pipe: Connection, shards: int, seconds: float) -> None:
    """The server's process. It ends when it is told to."""
    fake = FakeKinesis(settings=FakeKinesisSettings(limits=True))
    fake.create(STREAM, shards=shards)
    wanted = int(LIMIT_BYTES_PER_S * (seconds + 2 * WARM_UP_S) * 1.5 / RECORD_BYTES) * shards
    for number in range(wanted):
        fake.put(STREAM, f"key {number}", bytes(RECORD_BYTES))
    with FakeKinesisServer(fake) as server:
        pipe.send(server.endpoint_url)
        pipe.recv()


def poll(endpoint_url: str, consumers: int, shards: int, pipe: Connection) -> None:
    """The other consumers' process. It ends when it is told to."""
    ending = threading.Event()
    counts = [0] * (consumers * shards)

    def read(number: int) -> None:
        with closing(KinesisClient(aws(endpoint_url), StreamRef(STREAM))) as client:
            getter = KinesisShardGetter(
                client,
                f"shardId-{number % shards:012d}",
                TRIM_HORIZON,
                pacer=Pacer(ReadRate()),
                clock=CLOCK,
                one_attempt=True,
            )
            while not ending.is_set():
                with suppress(KinesisError, FetchPostponedError):
                    counts[number] += getter.fetch_unless_throttled(10_000).count
                ending.wait(POLL_S)

    began_s = CLOCK.monotonic_s()
    for number in range(len(counts)):
        threading.Thread(target=read, args=(number,), daemon=True).start()
    pipe.send("ready")
    pipe.recv()
    ending.set()
    pipe.send(sum(counts) * RECORD_BYTES / 1e6 / (CLOCK.monotonic_s() - began_s) / len(counts))


def measured(mode: str, endpoint_url: str, shards: int, seconds: float) -> dict[str, float]:
    """What the source reads in this time."""
    settings = KinesisSource(
        stream=STREAM,
        application=APPLICATION,
        zookeeper="in-memory:2181",
        region="us-east-1",
        endpoint_url=endpoint_url,
        access_key_id="benchmark",
        secret_access_key="benchmark",  # noqa: S106  # FakeKinesis takes any
        starting_position="TRIM_HORIZON",
        max_tasks=1,
        **MODES[mode],
    ).settings()
    backend = MemoryBackend()

    def services() -> ProcessServices:
        return ProcessServices(
            client=KinesisClient(settings.aws, settings.stream, clock=CLOCK),
            store=MemoryStateStore(backend, application=APPLICATION, stream=STREAM),
            clock=CLOCK,
            settings=settings,
        )

    executor, coordinator = services(), Coordinator(settings, services())
    driver = QueryDriver(QuerySettings.of([settings]), [coordinator])
    offset, read_bytes = offset_of({}, names_streams=False), 0
    begins_s = CLOCK.monotonic_s() + WARM_UP_S
    ends_s = begins_s + seconds
    with closing(coordinator), closing(executor.client):
        while CLOCK.monotonic_s() < ends_s:
            offset = driver.next_offset(offset, max_records=None)
            plan = offset["plan"]
            for task, one in coordinator.tasks(plan).items():
                for batch in read_task(plan, task, one, services=executor):
                    if begins_s <= CLOCK.monotonic_s() <= ends_s:
                        read_bytes += batch.num_rows * RECORD_BYTES
        coordinator.settle(offset["plan"])
        told = coordinator.report()
    mb_per_s = read_bytes / 1e6 / seconds / shards
    pushed = told.get("pushedRecords", 0)
    return {
        "mb_per_s": mb_per_s,
        "of_limit": mb_per_s * 1e6 / LIMIT_BYTES_PER_S,
        "pushed": pushed / max(1, pushed + told.get("polledRecords", 0)),
    }


def run(consumers: int, shards: int, seconds: float) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    report: dict[str, Any] = {"consumers": consumers, "shards": shards}
    for mode in MODES:
        here, there = multiprocessing.Pipe()
        others_here, others_there = multiprocessing.Pipe()
        server = context.Process(target=serve, args=(there, shards, seconds))
        server.start()
        endpoint_url = here.recv()
        others = context.Process(
            target=poll, args=(endpoint_url, consumers - 1, shards, others_there)
        )
        others.start()
        try:
            others_here.recv()
            report[mode] = measured(mode, endpoint_url, shards, seconds)
            others_here.send("end")
            report[mode]["others_mb_per_s"] = others_here.recv()
        finally:
            others.terminate()
            here.send("end")
            others.join()
            server.join()
    others_mb_per_s = report["efo"]["others_mb_per_s"]
    report["efo_to_others"] = (
        report["efo"]["mb_per_s"] / others_mb_per_s if others_mb_per_s else None
    )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consumers", type=int, default=20)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report = run(given.consumers, given.shards, given.seconds)
    if given.json:
        print(json.dumps(report, indent=2))
        return
    for mode in MODES:
        print(
            f"{mode:8}", "  ".join(f"{name} {value:6.3f}" for name, value in report[mode].items())
        )
    times = report["efo_to_others"] or float("inf")
    print(f"by subscription {times:.1f} times what each of the others polls beside it")


if __name__ == "__main__":
    main()
