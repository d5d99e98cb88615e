"""KPL aggregates: unpacking against awslabs' aws_kinesis_agg, and the Spark source with aggregates
against itself with plain records.

    python benchmarks/aggregates.py [--json] [--rounds N] [--records N]

Both unpack the same aggregates of 100-byte user records, of the KPL's default size: ours to Arrow
columns, theirs to a dict per record (without base64 on the way in). `with_keys` is a shard of
several, so the hashes of the keys are checked too, which theirs does not do. The best of the rounds
counts, on one core. `look`: what the look for aggregates adds to a page that has none, also as a
share of decoding the page.

Then Spark reads as many user records, with and without aggregates, from a server of ready-made
pages to its noop sink. Rounds alternate, the median of the ratios counts.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import random
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from aws_kinesis_agg.deaggregator import iter_deaggregate_records
from pyspark.sql import SparkSession

from benchmarks.decode import make_body
from benchmarks.replay_server import FIRST_NUMBER, ReplayedStream, serve, serve_stream
from kinesis_spout.aggregation.packing import Packer
from kinesis_spout.aggregation.unpacking import Unpacker, has_candidates
from kinesis_spout.service.get_records_decoder import decode_get_records
from kinesis_spout.service.record_putter import OutgoingRecord
from kinesis_spout.service.shard_info import HASH_KEYS, HashRange, ShardInfo, hash_key_of
from spark_job import KinesisSource
from state.sequence_number import SequenceNumber
from state.zookeeper import embedded as embedded_zookeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

RECORD_BYTES, SHARDS, KEYS = 100, 4, 1_000
PAGE_AGGREGATES = 40
WHOLE = HashRange(0, HASH_KEYS - 1)
TARGET_UNPACK, TARGET_SPARK = 5.0, 0.6


def packed(records: int, hash_range: HashRange, seed: int) -> list[tuple[str, bytes]]:
    """Key and data of aggregates of so many records, all of one shard."""
    rng = random.Random(seed)  # noqa: S311  # the same in every run
    packer = Packer(
        [
            ShardInfo(
                shard_id="shard",
                parents=(),
                hash_key_range=(hash_range.first, hash_range.last),
                starting_sequence=SequenceNumber(1),
                ending_sequence=None,
            )
        ]
    )
    found = []
    keys = [key for n in range(8 * KEYS) if hash_range.owns(hash_key_of(key := f"carrier-{n}"))][
        :KEYS
    ]
    for _ in range(records):
        found += packer.add(OutgoingRecord(rng.choice(keys), rng.randbytes(RECORD_BYTES)))
    return [(one.partition_key, one.data) for one in found + packer.flush()]


class AggregatedStream(ReplayedStream):
    """A stream whose records are aggregates."""

    def __init__(self, records: int) -> None:
        super().__init__("benchmark", SHARDS, 0, RECORD_BYTES)
        step = HASH_KEYS // SHARDS
        self.pages = []
        for shard in range(SHARDS):
            hash_range = HashRange(shard * step, (shard + 1) * step - 1)
            one_page = packed(PAGE_AGGREGATES * 445, hash_range, shard)[:PAGE_AGGREGATES]
            rows = sum(_users(data) for _, data in one_page)
            pages = max(1, round(records / SHARDS / rows))
            self.pages.append([self._page(one_page, n, pages) for n in range(pages)])

    def _page(self, aggregates: list[tuple[str, bytes]], page: int, pages: int) -> bytes:
        rows = [
            {
                "SequenceNumber": str(FIRST_NUMBER + 7 * (page * len(aggregates) + n)),
                "ApproximateArrivalTimestamp": self.created_s + page,
                "Data": base64.b64encode(data).decode(),
                "PartitionKey": key,
            }
            for n, (key, data) in enumerate(aggregates)
        ]
        body = {"Records": rows, "MillisBehindLatest": pages - 1 - page}
        return json.dumps(body)[:-1].encode()


def _users(data: bytes) -> int:
    return len(list(iter_deaggregate_records([_as_boto3(data)], data_format="Boto3")))


def _as_boto3(data: bytes) -> dict[str, Any]:
    return {
        "SequenceNumber": str(FIRST_NUMBER),
        "PartitionKey": "a",
        "ApproximateArrivalTimestamp": None,
        "Data": data,
    }


def best_s(act: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = perf_counter()
        act()
        times.append(perf_counter() - started)
    return min(times)


def unpacking(rounds: int) -> dict[str, Any]:
    count = 20_000
    half = HashRange(0, HASH_KEYS // 2)
    theirs = [_as_boto3(data) for _, data in packed(count, half, 0)]
    body = {
        "Records": [
            {
                "SequenceNumber": str(FIRST_NUMBER + n),
                "ApproximateArrivalTimestamp": 1_718_000_000.0,
                "Data": base64.b64encode(one["Data"]).decode(),
                "PartitionKey": "a",
            }
            for n, one in enumerate(theirs)
        ],
        "MillisBehindLatest": 0,
    }
    page = decode_get_records(json.dumps(body).encode()).records
    plain_body = make_body(RECORD_BYTES, 10_000)
    plain = decode_get_records(plain_body).records
    assert sum(one.num_rows for one in Unpacker(lambda: half).unpack(page)) == count
    seconds = {
        "theirs": best_s(
            lambda: list(iter_deaggregate_records(theirs, data_format="Boto3")), rounds
        ),
        "ours": best_s(lambda: list(Unpacker(lambda: WHOLE).unpack(page)), 4 * rounds),
        "with_keys": best_s(lambda: list(Unpacker(lambda: half).unpack(page)), 4 * rounds),
    }
    look_s = best_s(lambda: has_candidates(plain), 20 * rounds)
    decode_s = best_s(lambda: decode_get_records(plain_body).records, rounds)
    return {
        **{f"{name}_records_per_s": round(count / taken_s) for name, taken_s in seconds.items()},
        "times_faster": round(seconds["theirs"] / seconds["ours"], 1),
        "times_faster_with_keys": round(seconds["theirs"] / seconds["with_keys"], 1),
        "target": TARGET_UNPACK,
        "look_in_a_plain_page_us": round(look_s * 1e6),
        "look_share_of_decoding": round(look_s / decode_s, 4),
    }


def serve_aggregates(records: int, pipe: Connection) -> None:
    serve_stream(AggregatedStream(records), pipe)


@contextmanager
def server(target: Callable[..., None], *arguments: int) -> Iterator[str]:
    """A server in a process of its own, by its address."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join(10)


def read(spark: SparkSession, endpoint_url: str, directory: Path, name: str) -> tuple[int, float]:
    """Rows, and seconds of all batches of an AvailableNow query to the noop sink."""
    source = KinesisSource(
        stream="benchmark",
        application=name,
        zookeeper=embedded_zookeeper.ensure_running(directory / "zookeeper"),
        endpoint_url=endpoint_url,
        region="us-east-1",
        access_key_id="benchmark",
        secret_access_key="benchmark",  # noqa: S106  # the server takes any
        starting_position="TRIM_HORIZON",
        reads_per_second=1000,
        read_bytes_per_second="1GiB",
        max_records_per_shard=100_000_000,
        max_bytes_per_task="256MiB",
    )
    writer = source.read_stream(spark).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(directory / name)).trigger(availableNow=True)
    running = query.start()
    running.awaitTermination()
    batches = [json.loads(progress.json) for progress in running.recentProgress]
    rows = sum(batch["numInputRows"] for batch in batches)
    return rows, sum(batch["batchDuration"] for batch in batches) / 1000


def through_spark(records: int, rounds: int, directory: Path) -> dict[str, Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "ERROR")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    rates: dict[str, list[float]] = {"plain": [], "aggregated": []}
    try:
        with (
            server(serve, SHARDS, records, RECORD_BYTES) as plain,
            server(serve_aggregates, records) as aggregated,
        ):
            addresses = {"plain": plain, "aggregated": aggregated}
            for number in range(rounds + 1):
                for name, address in addresses.items():
                    rows, taken_s = read(spark, address, directory, f"{name}-{number}")
                    assert abs(rows - records) < records / 10, rows
                    if number:  # the first one warms up
                        rates[name].append(rows / taken_s)
    finally:
        spark.stop()
        embedded_zookeeper.stop(directory / "zookeeper")
    ratios = [ours / plain for ours, plain in zip(rates["aggregated"], rates["plain"], strict=True)]
    return {
        "plain_records_per_s": round(median(rates["plain"])),
        "user_records_per_s": round(median(rates["aggregated"])),
        "ratio": round(median(ratios), 2),
        "target": TARGET_SPARK,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000, help="through Spark; 0: none")
    options = parser.parse_args()
    found: dict[str, Any] = {"benchmark": "aggregates", "unpacking": unpacking(options.rounds)}
    if options.records:
        with tempfile.TemporaryDirectory(prefix="kinesis-spout-benchmark-") as directory:
            found["spark"] = through_spark(options.records, options.rounds, Path(directory))
    if options.json:
        print(json.dumps(found))
        return
    for part in ("unpacking", "spark"):
        for name, value in found.get(part, {}).items():
            print(f"{part:<10} {name:<28} {value:>12,}")


if __name__ == "__main__":
    main()
