"""FakeKinesis over HTTP, for boto3, Spark executors and users' own tests.

It is the standard library's threaded server.
"""

from __future__ import annotations

import threading
import uuid
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Self

from kinesis_spout.http_server import HttpServer, shut
from kinesis_spout.testing.errors import TransportFaultError
from kinesis_spout.testing.http import event_stream
from kinesis_spout.testing.http.protocol import Answer, FakeKinesisProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.testing.fake_kinesis import FakeKinesis
    from kinesis_spout.testing.service.subscribe_to_shard import Subscription

# How often a subscription is polled for an event. The service takes about 70 ms to push one.
_PUSH_INTERVAL_S = 0.02


class FakeKinesisServer:
    """Serves one FakeKinesis over HTTP/1.1 with keep-alive, one thread per connection.

    A context manager: entering binds the port and starts the threads; leaving closes every
    connection and waits until the threads have ended. Port 0 chooses a free port. The `Date` header
    shows the injected clock; the delay of a fault takes real seconds. Anybody who can reach the
    port can use it, so it is bound to loopback by default.
    """

    def __init__(self, fake: FakeKinesis, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.fake = fake
        self._address = (host, port)
        self._http: _HttpServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def endpoint_url(self) -> str:
        """`http://host:port`. Raises RuntimeError before the server is started."""
        if self._http is None:
            raise RuntimeError(
                "the fake Kinesis server is not started; use the server in a with statement"
            )
        return f"http://{self._address[0]}:{self._http.server_port}"

    def start(self) -> None:
        """Bind the port and serve; does nothing if it already serves.

        Raises OSError when the address cannot be bound.
        """
        if self._http is not None:
            return
        self._http = _HttpServer(self._address, self.fake)
        self._thread = threading.Thread(
            target=self._http.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="fake-kinesis",
            daemon=True,
        )
        self._thread.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._http is None or self._thread is None:
            return
        self._http.shutdown()
        self._thread.join()
        self._http.ending.set()
        self._http.end_connections()
        self._http.server_close()
        self._http = self._thread = None


class _HttpServer(HttpServer):
    daemon_threads = False  # server_close waits for non-daemon threads only

    def __init__(self, address: tuple[str, int], fake: FakeKinesis) -> None:
        self.ending = threading.Event()
        self.protocol = FakeKinesisProtocol(fake, wait_s=self.ending.wait)
        self.clock = fake.clock
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered: headers and body leave in one segment
    server: _HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            answer = self.server.protocol.answer(
                self.headers.get("X-Amz-Target", ""),
                body,
                authorization=self.headers.get("Authorization"),
                content_type=self.headers.get("Content-Type"),
            )
        except TransportFaultError:
            self.close_connection = True
            shut(self.connection)
            return
        if answer.subscription is None:
            self._send(answer)
        else:
            self._push(answer.subscription, answer.alter)

    def do_GET(self) -> None:
        """Health check: 200 while the server is up."""
        self._send(Answer(200, b""))

    def _send(self, answer: Answer) -> None:
        length = len(answer.body)
        self._send_headers(answer.status, answer.content_type, ("Content-Length", str(length)))
        if not answer.truncated:
            self.wfile.write(answer.body)
            return
        self.wfile.write(answer.body[: length // 2])
        self.wfile.flush()
        self.close_connection = True
        shut(self.connection)

    def _push(self, subscription: Subscription, alter: Callable[[Any], object] | None) -> None:
        """Send a subscription's events until it ends, the client is gone, or the server ends."""
        self._send_headers(200, event_stream.CONTENT_TYPE, ("Transfer-Encoding", "chunked"))
        message: bytes | None = event_stream.initial_response()
        while message is not None or not subscription.ended:
            if message is not None:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(message), message))
                self.wfile.flush()
            elif self.server.ending.wait(_PUSH_INTERVAL_S):
                self.close_connection = True
                return
            message = event_stream.next_message(subscription, alter)
        self.wfile.write(b"0\r\n\r\n")

    def _send_headers(self, status: int, content_type: str, framing: tuple[str, str]) -> None:
        self.send_response_only(status)
        self.send_header("Date", formatdate(self.server.clock.now_ms() / 1000, usegmt=True))
        self.send_header("Content-Type", content_type)
        self.send_header(*framing)
        self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
        self.end_headers()
