"""GetRecords in CBOR and in JSON: pages over HTTP to Arrow, and decoding alone, in one run.

    python benchmarks/wire_format.py [--json] [--rounds N] [--pages N]

The server is another process on the same machine, and sends prepared pages. Rounds of JSON and of
CBOR alternate; each reads all pages of one shard over one connection. CPU is that of this process:
request, signature, receiving, decoding. The medians of the rounds count, and the ratio is the
median of the ratios of neighbouring rounds. Decoding alone: the best of as many pages.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cbor2

from benchmarks.replay_server import PAGE, in_cbor, make_pages, serve
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.get_records_cbor import decode_get_records_cbor
from kinesis_spout.service.get_records_decoder import decode_get_records
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (100, 1_024, 10_240)
PAGE_BYTES = 10_000_000  # the service sends at most that, and 10,000 records
SHARD = "shardId-000000000000"


def read_all(url: str, wire_format: str) -> dict[str, float]:
    """One round: every page of the shard as Arrow."""
    aws = AwsConfig(
        region="us-east-1",
        endpoint_url=url,
        access_key_id="benchmark",
        secret_access_key="benchmark",  # noqa: S106  # made up
        wire_format=wire_format,
    )
    with closing(KinesisClient(aws, StreamRef("benchmark"))) as client:
        iterator = client.shard_iterator(SHARD, Position.parse("TRIM_HORIZON"))
        client.get_records(iterator, PAGE)  # connected, and the page is in the server's memory
        cpu_s, wall_s, records = process_time(), perf_counter(), 0
        while (page := client.get_records(iterator, PAGE)).count:
            records += page.records.num_rows
            assert page.next_iterator is not None
            iterator = page.next_iterator
    return {
        "cpu_us": 1e6 * (process_time() - cpu_s) / records,
        "wall_us": 1e6 * (perf_counter() - wall_s) / records,
    }


def best_us(decode: Callable[[bytes], Any], body: bytes, times: int, records: int) -> float:
    """CPU of the fastest, per record."""
    found = []
    for _ in range(times):
        started = process_time()
        decode(body)
        found.append(process_time() - started)
    return 1e6 * min(found) / records


def decoding(size: int, records: int, times: int) -> dict[str, Any]:
    (page,) = make_pages(records, size, 1, 1_718_000_000_000)
    bodies = {"json": page + b"}", "cbor": b"\xa2" + in_cbor(page)}
    decoders: dict[str, tuple[Callable[[bytes], Any], str]] = {
        "json": (lambda body: decode_get_records(body).records, "json"),
        "cbor": (lambda body: decode_get_records_cbor(body).records, "cbor"),
        "cbor2": (
            lambda body: cbor2.loads(body, semantic_decoders={1: lambda time, _: time}),
            "cbor",
        ),
    }
    found = {
        name: best_us(decode, bodies[form], times, records)
        for name, (decode, form) in decoders.items()
    }
    return {
        "bytes_ratio": round(len(bodies["cbor"]) / len(bodies["json"]), 3),
        "decode_json_us": round(found["json"], 3),
        "decode_cbor_us": round(found["cbor"], 3),
        "decode_cbor2_us": round(found["cbor2"], 3),
        "decode_ratio": round(found["cbor"] / found["json"], 2),
    }


def measure(size: int, rounds: int, pages: int) -> dict[str, Any]:
    records = min(PAGE, PAGE_BYTES // size)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(
        target=serve,
        args=(1, pages * records, size, theirs),
        kwargs={"page_records": records},
        daemon=True,
    )
    server.start()
    theirs.close()
    found: dict[str, list[dict[str, float]]] = {"json": [], "cbor": []}
    try:
        url = ours.recv()
        read_all(url, "cbor")  # the server encodes
        for _ in range(rounds):
            for wire_format, results in found.items():
                results.append(read_all(url, wire_format))
    finally:
        ours.close()
        server.join(timeout=20)
    medians = {
        f"{wire_format}_{name}": round(median(one[name] for one in results), 3)
        for wire_format, results in found.items()
        for name in ("cpu_us", "wall_us")
    }
    pairs = list(zip(found["json"], found["cbor"], strict=True))
    ratios = {
        f"{name}_ratio": round(median(cbor[key] / json_[key] for json_, cbor in pairs), 2)
        for name, key in (("cpu", "cpu_us"), ("wall", "wall_us"))
    }
    return (
        {"record_bytes": size, "records_per_page": records}
        | medians
        | ratios
        | decoding(size, records, 3 * rounds)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare GetRecords in CBOR with JSON.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each (default 7)")
    parser.add_argument("--pages", type=int, default=20, help="pages a round (default 20)")
    arguments = parser.parse_args()
    results = [measure(size, max(1, arguments.rounds), max(1, arguments.pages)) for size in SIZES]
    if arguments.json:
        print(json.dumps({"benchmark": "wire_format", "results": results}))
        return
    print(
        f"{'record':>8} {'CPU json':>9} {'cbor':>7} {'ratio':>6} {'wall':>6} {'bytes':>6}"
        f" {'decode json':>12} {'cbor':>7} {'ratio':>6} {'cbor2 alone':>12}"
    )
    for row in results:
        print(
            f"{row['record_bytes']:>7}B {row['json_cpu_us']:>9} {row['cbor_cpu_us']:>7} "
            f"{row['cpu_ratio']:>6} {row['wall_ratio']:>6} {row['bytes_ratio']:>6} "
            f"{row['decode_json_us']:>12} {row['decode_cbor_us']:>7} {row['decode_ratio']:>6} "
            f"{row['decode_cbor2_us']:>12}"
        )
    print("CPU and decode: microseconds of this process a record; ratios are cbor / json")


if __name__ == "__main__":
    main()
