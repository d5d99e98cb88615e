"""A server that answers like Kinesis from prepared bodies, so that it is not the bottleneck.

It has one stream, whose shards and records do not change. It has no limits, retention or faults.
Pages that are asked for in CBOR are encoded at their first read.
"""

from __future__ import annotations

import base64
import json
import os
import random
import socketserver
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from kinesis_spout.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Collection
    from multiprocessing.connection import Connection

FIRST_NUMBER = 49590338271490256608559692538361571095921575989136588898
PAGE = 10_000


def make_pages(
    records: int, size: int, seed: int, first_ms: int, page_records: int = PAGE
) -> list[bytes]:
    """GetRecords bodies of one shard. The iterator of page n is n."""
    rng = random.Random(seed)  # noqa: S311  # the same bodies in every run
    payloads = [
        base64.b64encode(rng.randbytes(size)).decode() for _ in range(min(records, page_records))
    ]
    pages = []
    for first in range(0, records, page_records):
        rows = [
            {
                "SequenceNumber": str(FIRST_NUMBER + 7 * (first + i)),
                "ApproximateArrivalTimestamp": (first_ms + (first + i) // 100) / 1000,
                "Data": payloads[i],
                "PartitionKey": f"carrier-{i % 1000}",
            }
            for i in range(min(page_records, records - first))
        ]
        pages.append(
            json.dumps(
                {"Records": rows, "MillisBehindLatest": max(0, records - first - page_records)}
            )[:-1].encode()
        )
    return pages


def in_cbor(page: bytes) -> bytes:
    """A body of `make_pages` in CBOR, without the head of its map and the iterator."""
    import cbor2  # noqa: PLC0415  # an extra that other benchmarks do without

    found = json.loads(page + b"}")
    for record in found["Records"]:
        seconds = record["ApproximateArrivalTimestamp"]
        record["ApproximateArrivalTimestamp"] = cbor2.CBORTag(1, round(seconds * 1000))
        record["Data"] = base64.b64decode(record["Data"])
    return b"".join(cbor2.dumps(part) for pair in found.items() for part in pair)


class ReplayedStream:
    """A stream of `shards` shards, each with its share of the records."""

    def __init__(
        self, name: str, shards: int, records: int, size: int, page_records: int = PAGE
    ) -> None:
        self.name = name
        created_ms = SystemClock().now_ms() - 60_000
        self.pages = [
            make_pages(records // shards, size, n, created_ms, page_records) for n in range(shards)
        ]
        self.created_s = created_ms / 1000
        self._in_cbor: dict[tuple[int, int], bytes] = {}

    def answer(self, action: str, asked: dict[str, Any]) -> bytes:
        if action == "GetRecords":
            shard, page = map(int, asked["ShardIterator"].split("."))
            pages = self.pages[shard]
            body = pages[page] if page < len(pages) else b'{"Records": [], "MillisBehindLatest": 0'
            return body + b', "NextShardIterator": "%d.%d"}' % (shard, min(page + 1, len(pages)))
        return json.dumps(self._control(action, asked)).encode()

    def answer_in_cbor(self, asked: dict[str, Any]) -> bytes:
        """A page."""
        shard, page = map(int, asked["ShardIterator"].split("."))
        pages = self.pages[shard]
        body = self._in_cbor.get((shard, page))
        if body is None:
            empty = b'{"Records": [], "MillisBehindLatest": 0'
            body = in_cbor(pages[page] if page < len(pages) else empty)
            self._in_cbor[shard, page] = body
        following = b"%d.%d" % (shard, min(page + 1, len(pages)))
        return b"\xa3%b\x71NextShardIterator%c%b" % (body, 0x60 + len(following), following)

    def _control(self, action: str, asked: dict[str, Any]) -> dict[str, Any]:
        if action == "GetShardIterator":
            return {"ShardIterator": f"{int(asked['ShardId'][-12:])}.0"}
        stream = {
            "StreamName": self.name,
            "StreamARN": f"arn:aws:kinesis:us-east-1:000000000000:stream/{self.name}",
            "StreamStatus": "ACTIVE",
            "RetentionPeriodHours": 24,
            "StreamCreationTimestamp": self.created_s,
            "EnhancedMonitoring": [],
        }
        if action == "ListShards":
            return {"Shards": self._shards()}
        if action == "DescribeStream":
            return {
                "StreamDescription": {**stream, "Shards": self._shards(), "HasMoreShards": False}
            }
        return {"StreamDescriptionSummary": {**stream, "OpenShardCount": len(self.pages)}}

    def _shards(self) -> list[dict[str, Any]]:
        step = 2**128 // len(self.pages)
        return [
            {
                "ShardId": f"shardId-{n:012d}",
                "HashKeyRange": {
                    "StartingHashKey": str(n * step),
                    "EndingHashKey": str(
                        (n + 1) * step - 1 if n + 1 < len(self.pages) else 2**128 - 1
                    ),
                },
                "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST_NUMBER - 1)},
            }
            for n in range(len(self.pages))
        ]


def _handler(stream: ReplayedStream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"])) or b"{}"
            kind = self.headers["Content-Type"]
            if "cbor" in kind:
                import cbor2  # noqa: PLC0415  # an extra

                body = stream.answer_in_cbor(cbor2.loads(sent))
            else:
                action = self.headers["X-Amz-Target"].partition(".")[2]
                body = stream.answer(action, json.loads(sent))
            head = (
                f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nx-amzn-RequestId: 1\r\n"
                f"Date: {formatdate(usegmt=True)}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            self.wfile.write(head.encode() + body)

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without a reverse DNS lookup of the host
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: a reader that has seen everything leaves with a request in flight."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def serve(
    shards: int,
    records: int,
    size: int,
    pipe: Connection,
    cores: Collection[int] = (),
    *,
    page_records: int = PAGE,
) -> None:
    """The server's process, on `cores`: make the bodies, send the address, end when the pipe
    closes.
    """
    if cores:
        os.sched_setaffinity(0, cores)
    serve_stream(ReplayedStream("benchmark", shards, records, size, page_records), pipe)


def serve_stream(stream: ReplayedStream, pipe: Connection) -> None:
    """Answer for a stream: send the address, end when the pipe closes."""
    with _Server(("127.0.0.1", 0), _handler(stream)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pipe.send(f"http://127.0.0.1:{server.server_port}")
        try:
            pipe.recv()
        except EOFError:
            server.shutdown()
