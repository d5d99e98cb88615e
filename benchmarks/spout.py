"""The standalone spout against a plain boto3 loop and async-kinesis, and its latency under light
load.

    python benchmarks/spout.py [--json] [--records N] [--bytes N] [--rounds N] [--cbor] [--peer]
        [--before CHECKOUT]

Each reader is a process of its own. All read the same records from the same local server, and pass
every payload to the same lines of code. A run counts only if all of them saw the same. If there are
several cores, the reader has one and the server has the others: threads on several cores, which may
be two halves of one, would slow each other down. The result is records per second of processor time
after connecting, because other load on the machine disturbs that least. --cbor adds the spout that
reads CBOR, --before the spout of another checkout of this repository. --peer installs
async-kinesis in a separate environment (.tools) and adds it to the comparison. The latency is the
time from before a put to after the ack, at about 20 puts a second.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.replay_server import PAGE, serve
from kinesis_spout.config import AwsConfig
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer

SHARDS = 4
PAGE_BYTES = 10_000_000  # the service sends at most that, and 10,000 records
AIMS = {"boto3": 3.0, "async-kinesis": 10.0}
PEER = "async-kinesis==3.0.1"
ROOT = Path(__file__).resolve().parents[1]
PUTS, PUT_INTERVAL_S, AIM_P99_MS = 200, 0.05, 400


def peer_python() -> Path:
    """The interpreter of the environment that has async-kinesis. It is made if missing."""
    home = ROOT / ".tools" / "async-kinesis"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PEER], check=True)
    return python


def cores() -> tuple[set[int], set[int]]:
    """The cores of the server, and the core of a reader.

    None if processes cannot be pinned to cores, or there is only one.
    """
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        return set(), set()
    first, *others = sorted(os.sched_getaffinity(0))
    return set(others), {first}


def read(
    reader: str, endpoint_url: str, records: int, core: set[int], before: Path | None
) -> dict[str, Any]:
    """One reader's run in a process of its own. The reader `before` is the spout of that
    checkout.
    """
    python = peer_python() if reader == "async-kinesis" else Path(sys.executable)
    program = str(ROOT / "benchmarks" / "spout_readers.py")
    name, root = ("spout", before) if reader == "before" else (reader, ROOT)
    environment = (
        os.environ if reader == "async-kinesis" else {**os.environ, "PYTHONPATH": str(root)}
    )
    ran = subprocess.run(
        [str(python), program, name, endpoint_url, str(records), *map(str, core)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{reader} failed: {ran.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def compare(
    records: int, size: int, rounds: int, readers: list[str], before: Path | None
) -> dict[str, Any]:
    """Records per second of processor time, the best of the rounds. The readers alternate."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    for_server, for_reader = cores()
    server = multiprocessing.get_context("spawn").Process(
        target=serve,
        args=(SHARDS, records, size, theirs, for_server),
        kwargs={"page_records": min(PAGE, PAGE_BYTES // size)},
        daemon=True,
    )
    server.start()
    theirs.close()
    runs: dict[str, list[dict[str, Any]]] = {reader: [] for reader in readers}
    try:
        endpoint_url = ours.recv()
        for _ in range(rounds):
            for reader in readers:
                runs[reader].append(read(reader, endpoint_url, records, for_reader, before))
    finally:
        ours.close()
        server.join(10)
    seen = {
        (run["records"], run["payload_bytes"], run["checksum"])
        for each in runs.values()
        for run in each
    }
    if len(seen) != 1 or next(iter(seen))[0] != records:
        raise SystemExit(f"the readers did not read the same: {seen}")
    rates = {
        reader: max(run["records"] / run["cpu_s"] for run in each) for reader, each in runs.items()
    }
    walls = {
        reader: max(run["records"] / run["wall_s"] for run in each) for reader, each in runs.items()
    }
    return {
        "records": records,
        "record_bytes": size,
        "rounds": rounds,
        "records_per_cpu_s": {reader: round(rate) for reader, rate in rates.items()},
        "records_per_s": {reader: round(rate) for reader, rate in walls.items()},
        "cpu_us_per_record": {reader: round(1e6 / rate, 2) for reader, rate in rates.items()},
        "times_faster": {
            reader: round(rates["spout"] / rate, 2)
            for reader, rate in rates.items()
            if reader != "spout"
        },
    }


def latency() -> dict[str, int]:
    """Milliseconds from before a put to after its ack."""
    fake = FakeKinesis()
    fake.create("benchmark", shards=2)
    took: list[float] = []
    with FakeKinesisServer(fake) as server:
        aws = AwsConfig(
            region="us-east-1",
            endpoint_url=server.endpoint_url,
            access_key_id="b",
            secret_access_key="b",  # noqa: S106
        )
        config = SpoutConfig(stream="benchmark", aws=aws, starting_position="TRIM_HORIZON")

        def produce() -> None:
            for number in range(PUTS):
                fake.put("benchmark", f"key {number}", b"%d" % time.perf_counter_ns())
                time.sleep(PUT_INTERVAL_S)  # noqa: TID251  # the load of the measurement

        with KinesisSpout(config) as spout:
            producer = threading.Thread(target=produce)
            producer.start()
            for emission in spout.emissions():
                with emission:
                    pass
                took.append((time.perf_counter_ns() - int(emission.data)) / 1e6)
                if len(took) == PUTS:
                    break
            producer.join()
    return {"p50_ms": round(median(took)), "p99_ms": round(quantiles(took, n=100)[98])}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="payload of a record")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cbor", action="store_true", help="compare with the spout in CBOR too")
    parser.add_argument("--before", type=Path, help="compare with the spout of this checkout too")
    parser.add_argument("--peer", action="store_true", help="compare with async-kinesis too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    readers = [
        "spout",
        *(["spout-cbor"] if options.cbor else []),
        *(["before"] if options.before else []),
        "boto3",
        *(["async-kinesis"] if options.peer else []),
    ]
    found = {
        "benchmark": "spout",
        **compare(options.records, options.bytes, options.rounds, readers, options.before),
        "put_to_ack": latency(),
    }
    if options.json:
        print(json.dumps(found))
        return
    for reader in readers:
        print(
            f"{reader:14} {found['records_per_cpu_s'][reader]:>9,} records/s a core, "
            f"{found['records_per_s'][reader]:>9,} in all, "
            f"{found['cpu_us_per_record'][reader]:>6} us of CPU a record"
        )
    for reader, times in found["times_faster"].items():
        aim = f" (aim: {AIMS[reader]:g})" if reader in AIMS else ""
        print(f"the spout does {times} times what {reader} does{aim}")
    times = found["put_to_ack"]
    print(
        f"put to ack under light load: p50 {times['p50_ms']} ms, p99 {times['p99_ms']} ms (aim: "
        f"p99 below {AIM_P99_MS})"
    )


if __name__ == "__main__":
    main()
