"""How long a record is on its way through a spout, from its put to its ack, under light load: by
polling, and by enhanced fan-out.

    python benchmarks/push_latency.py [--puts N] [--pause S] [--shards S] [--json]

The server (FakeKinesis) is a process of its own on this machine, and looks for new records every
20 ms. It adds none of the network's time, nor the 70 ms or so that the service takes to push.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig
from kinesis_spout.spout import KinesisSpout, SpoutConfig
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

STREAM = "orders"
MODES: dict[str, dict[str, str]] = {
    "polling": {},
    "efo": {"read_mode": "efo", "consumer_name": "benchmark"},
}
WARM_UP = 10
CLOCK = SystemClock()


def serve(pipe: Connection, puts: int, pause_s: float, shards: int) -> None:
    """The server's process. It puts a record every `pause_s` seconds once it is told to, and ends
    when it is told again.
    """
    fake = FakeKinesis()
    fake.create(STREAM, shards=shards)
    with FakeKinesisServer(fake) as server:
        pipe.send(server.endpoint_url)
        pipe.recv()
        for number in range(puts):
            fake.put(STREAM, f"key {number}", str(CLOCK.now_ms()).encode())
            CLOCK.sleep(pause_s)
        pipe.recv()


def latencies_ms(mode: str, puts: int, pause_s: float, shards: int) -> list[float]:
    """From put to ack, of each record but the first few."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(there, puts, pause_s, shards)
    )
    server.start()
    try:
        aws = AwsConfig(
            region="us-east-1",
            endpoint_url=here.recv(),
            access_key_id="benchmark",
            secret_access_key="benchmark",  # noqa: S106  # FakeKinesis takes any
        )
        options: dict[str, Any] = {"stream": STREAM, "aws": aws, **MODES[mode]}
        found: list[float] = []
        with closing(KinesisSpout(SpoutConfig(**options, starting_position="TRIM_HORIZON"))) as one:
            one.open()
            here.send("go")
            for emission in one.emissions(lambda: len(found) == puts):
                emission.ack()
                found.append(float(CLOCK.now_ms() - int(emission.data)))
        return found[WARM_UP:]
    finally:
        here.send("end")
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--puts", type=int, default=500)
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report = {}
    for mode in MODES:
        found = latencies_ms(mode, given.puts, given.pause, given.shards)
        cuts = statistics.quantiles(found, n=100)
        report[mode] = {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(found)}
    if given.json:
        print(json.dumps(report, indent=2))
        return
    for mode, figures in report.items():
        print(f"{mode:8}", "  ".join(f"{name} {value:7.1f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
