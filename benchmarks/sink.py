"""The sink against a plain boto3 loop over the same Arrow batches: CPU and rate, in one run.

    python benchmarks/sink.py [--json] [--rounds N] [--records N]

The server is another process on the same machine. It accepts everything and reads no more of a
request than the number of its records. The boto3 loop is what `foreachPartition` recipes do: 500
rows a request, one request after the other, refused ones again. Rounds alternate; the medians
count, and the ratio is the median of the ratios of neighbouring rounds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import boto3
import pyarrow as pa

from spark_job.sink.record_writer import RecordWriter
from spark_job.sink.sink_columns import SinkColumns
from spark_job.sink.sink_settings import SinkSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

SIZES = (100, 1_024)
BATCH = 10_000
SHARDS = 8
STREAM = "benchmark"


class Accepting(BaseHTTPRequestHandler):
    """Answers the three operations of a write, for a stream of eight shards."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        answer = json.dumps(self._answer(operation, body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _answer(self, operation: str, body: bytes) -> dict[str, Any]:
        if operation == "PutRecords":
            taken = {"SequenceNumber": "1" * 56, "ShardId": "shardId-000000000000"}
            return {"FailedRecordCount": 0, "Records": [taken] * body.count(b'"PartitionKey"')}
        if operation == "ListShards":
            size = 2**128 // SHARDS
            return {
                "Shards": [
                    {
                        "ShardId": f"shardId-{index:012}",
                        "HashKeyRange": {
                            "StartingHashKey": str(index * size),
                            "EndingHashKey": str((index + 1) * size - 1),
                        },
                        "SequenceNumberRange": {"StartingSequenceNumber": "1" * 56},
                    }
                    for index in range(SHARDS)
                ]
            }
        return {
            "StreamDescriptionSummary": {
                "StreamARN": f"arn:aws:kinesis:us-east-1:1:stream/{STREAM}",
                "StreamName": STREAM,
                "StreamCreationTimestamp": 1.0,
                "StreamStatus": "ACTIVE",
                "RetentionPeriodHours": 24,
            }
        }

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(pipe: Connection) -> None:
    """The server's process: send the address, end when the pipe closes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Accepting) as server:
        pipe.send(f"http://127.0.0.1:{server.server_address[1]}")
        server.serve_forever()


def batches(records: int, size: int) -> list[pa.RecordBatch]:
    data = b"x" * size
    return [
        pa.record_batch(
            {
                "data": [data] * BATCH,
                "partitionKey": [f"key {start + index}" for index in range(BATCH)],
            }
        )
        for start in range(0, records, BATCH)
    ]


def sink(url: str, frames: list[pa.RecordBatch], ordering: str = "none") -> int:
    settings = SinkSettings.from_options(
        {
            "streamName": STREAM,
            "endpointUrl": url,
            "region": "us-east-1",
            "awsAccessKeyId": "benchmark",
            "awsSecretAccessKey": "benchmark",
            "ordering": ordering,
        }
    )
    with closing(RecordWriter(settings, SinkColumns(0, 1, None, None))) as writer:
        return writer.write(frames).records


def by_key(url: str, frames: list[pa.RecordBatch]) -> int:
    return sink(url, frames, "key")


def boto3_loop(url: str, frames: list[pa.RecordBatch]) -> int:
    client = boto3.client(
        "kinesis",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="benchmark",
        aws_secret_access_key="benchmark",  # noqa: S106  # made up
    )
    count = 0
    for frame in frames:
        rows = [
            {"Data": row["data"], "PartitionKey": row["partitionKey"]} for row in frame.to_pylist()
        ]
        for start in range(0, len(rows), 500):
            waiting = rows[start : start + 500]
            while waiting:
                answer = client.put_records(StreamName=STREAM, Records=waiting)
                waiting = [
                    row
                    for row, result in zip(waiting, answer["Records"], strict=True)
                    if "ErrorCode" in result
                ]
        count += len(rows)
    return count


def timed(
    write: Callable[[str, list[pa.RecordBatch]], int], url: str, size: int, records: int
) -> dict[str, float]:
    frames = batches(records, size)
    cpu_s, wall_s = process_time(), perf_counter()
    count = write(url, frames)
    assert count == records, count
    return {
        "cpu_us": 1e6 * (process_time() - cpu_s) / count,
        "per_second": count / (perf_counter() - wall_s),
    }


def measure(url: str, size: int, rounds: int, records: int) -> dict[str, Any]:
    writers = {"boto3": boto3_loop, "sink": sink, "sink, ordering=key": by_key}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in writers}
    for write in writers.values():  # connected, and all modules are loaded
        timed(write, url, size, BATCH)
    for _ in range(rounds):
        for name, write in writers.items():
            found[name].append(timed(write, url, size, records))
    return {
        "bytes": size,
        **{
            name: {key: median(one[key] for one in runs) for key in ("cpu_us", "per_second")}
            | {
                "cpu_ratio": median(
                    ours["cpu_us"] / theirs["cpu_us"]
                    for ours, theirs in zip(runs, found["boto3"], strict=True)
                ),
                "rate_ratio": median(
                    ours["per_second"] / theirs["per_second"]
                    for ours, theirs in zip(runs, found["boto3"], strict=True)
                ),
            }
            for name, runs in found.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The sink against a plain boto3 loop.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=50_000)
    arguments = parser.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        url = here.recv()
        results = [measure(url, size, arguments.rounds, arguments.records) for size in SIZES]
    finally:
        server.terminate()
        server.join()
    if arguments.json:
        print(json.dumps(results))
        return
    for result in results:
        size = result.pop("bytes")
        for name, figures in result.items():
            print(
                f"{size:>5} B  {name:<20} {figures['cpu_us']:6.1f} us CPU a record "
                f"({figures['cpu_ratio']:.2f}), {figures['per_second']:9,.0f} a second "
                f"({figures['rate_ratio']:.2f})"
            )


if __name__ == "__main__":
    main()
