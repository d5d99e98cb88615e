"""The sink against plain boto3 loops over the same Arrow batches: CPU and rate, in one run.

    python benchmarks/sink.py [--json] [--rounds N] [--records N] [--bytes B ...]

The server is another process on the same machine. It accepts everything, and reads no more of a
request than the number of its records and the shards of aggregates. The boto3 loop is what
`foreachPartition` recipes do: 500 rows a request, one request after the other, refused ones again.
It takes its rows from the columns, which costs it least; once also without botocore's validation of
parameters. CPU is that of the whole process with its threads. Rounds alternate; the medians count,
and a ratio is the median of the ratios of neighbouring rounds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from contextlib import closing, contextmanager
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import boto3
import pyarrow as pa
from botocore.config import Config

from spark_job.sink.record_writer import RecordWriter
from spark_job.sink.sink_rows import SinkColumns
from spark_job.sink.sink_settings import SinkSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.connection import Connection

SIZES = (100, 1_024)
BATCH = 10_000
SHARDS = 8
STREAM = "benchmark"


def accepted(shards: list[int]) -> dict[str, Any]:
    """The answer to a request whose records these shards take."""
    return {
        "FailedRecordCount": 0,
        "Records": [
            {"SequenceNumber": "1" * 56, "ShardId": f"shardId-{shard:012}"} for shard in shards
        ],
    }


@cache
def taken(count: int) -> bytes:
    """The answer to a request of so many records, as the service writes it."""
    return json.dumps(accepted([0] * count), separators=(",", ":")).encode()


class Accepting(BaseHTTPRequestHandler):
    """Answers the three operations of a write, for a stream of eight shards."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        answer = (
            taken(body.count(b'"PartitionKey"'))
            if operation == "PutRecords" and b'"ExplicitHashKey"' not in body
            else json.dumps(self._answer(operation, body)).encode()
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _answer(self, operation: str, body: bytes) -> dict[str, Any]:
        if operation == "PutRecords":
            hash_keys = [
                int(record.get("ExplicitHashKey", 0)) for record in json.loads(body)["Records"]
            ]
            return accepted([hash_key * SHARDS >> 128 for hash_key in hash_keys])
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


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """The address of a running server, and its process id."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    server.start()
    assert server.pid is not None
    try:
        yield here.recv(), server.pid
    finally:
        server.terminate()
        server.join()


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


def sink(url: str, frames: list[pa.RecordBatch], **options: str) -> int:
    settings = SinkSettings.from_options(
        {
            "streamName": STREAM,
            "endpointUrl": url,
            "region": "us-east-1",
            "awsAccessKeyId": "benchmark",
            "awsSecretAccessKey": "benchmark",
        }
        | options
    )
    with closing(RecordWriter(settings, SinkColumns(0, 1, None, None))) as writer:
        return writer.write(frames).records


def boto3_loop(url: str, frames: Iterable[pa.RecordBatch], *, validation: bool = True) -> int:
    client = boto3.client(
        "kinesis",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="benchmark",
        aws_secret_access_key="benchmark",  # noqa: S106  # made up
        config=Config(parameter_validation=validation),
    )
    count = 0
    for frame in frames:
        datas, keys = frame.column("data").to_pylist(), frame.column("partitionKey").to_pylist()
        rows = [{"Data": data, "PartitionKey": key} for data, key in zip(datas, keys, strict=True)]
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


WRITERS: dict[str, Callable[[str, list[pa.RecordBatch]], int]] = {
    "boto3": boto3_loop,
    "boto3, not validated": partial(boto3_loop, validation=False),
    "sink": sink,
    "sink, ordering=key": partial(sink, ordering="key"),
    "sink, aggregate=true": partial(sink, aggregate="true"),
}


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
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WRITERS}
    for write in WRITERS.values():  # connected, and all modules are loaded
        timed(write, url, size, BATCH)
    for _ in range(rounds):
        for name, write in WRITERS.items():
            found[name].append(timed(write, url, size, records))
    return {
        "bytes": size,
        **{
            name: {key: median(one[key] for one in runs) for key in ("cpu_us", "per_second")}
            | {
                "per_cpu_second": median(
                    theirs["cpu_us"] / ours["cpu_us"]
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
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, nargs="+", default=SIZES, dest="sizes")
    arguments = parser.parse_args()
    with served() as (url, _):
        results = [
            measure(url, size, arguments.rounds, arguments.records) for size in arguments.sizes
        ]
    if arguments.json:
        print(json.dumps(results))
        return
    for result in results:
        size = result.pop("bytes")
        for name, figures in result.items():
            print(
                f"{size:>5} B  {name:<22} {figures['cpu_us']:6.1f} us CPU a record "
                f"({figures['per_cpu_second']:.2f} times the records of boto3), "
                f"{figures['per_second']:9,.0f} a second ({figures['rate_ratio']:.2f})"
            )


if __name__ == "__main__":
    main()
