"""The HTTP server of the page: it answers GET and HEAD, for names of this machine only.

A page of another site may make a browser ask this server (DNS rebinding), so a request must name
this machine in its Host header. Answers say that nothing but their own style and script may run,
and are stored nowhere. Each connection has one request and some seconds. There are at most
`MAX_CONNECTIONS`: a further one ends the oldest.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kinesis_spout.errors import ConfigError
from kinesis_spout.page.document import policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 32
TIMEOUT_S = 10.0
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": f"{policy(is_live=True)}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Answer(NamedTuple):
    """`kind`: a Content-Type. `tag`: its ETag; who has it already gets no body again."""

    status: HTTPStatus
    kind: str
    body: bytes
    tag: str = ""


class Pages(Protocol):
    """The content. Several threads may call it."""

    def answer(self, target: str) -> Answer:
        """`target`: the path and the query of the request, as they came."""
        ...


def text(status: HTTPStatus, sentence: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())


class PageServer:
    """Serves pages from threads of its own. Port 0 takes a free one. A context manager."""

    def __init__(self, pages: Pages, port: int, host: str = LOOPBACK) -> None:
        self._pages = pages
        self._host = host
        self.port = port
        self._server: _Server | None = None

    def start(self) -> None:
        """Raises `ConfigError` when the address cannot be bound."""
        try:
            self._server = _Server(self._pages, self._host, self.port)
        except (OSError, OverflowError) as exc:
            raise ConfigError.of(
                "--port", f"cannot be bound at {self._host}: {exc}", self.port, remedy="use another"
            ) from exc
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="pages", daemon=True
        ).start()

    def close(self) -> None:
        """Idempotent. Ends open connections."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.end_all()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine's own."""
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def may_be_asked_as(host: str, bound_to: str) -> bool:
    """Whether a request with this Host header is for us: it names this machine; or, where the
    server listens elsewhere too, an address, or the name that it was told. A page of another site
    has a name that is neither.
    """
    name = _without_port(host)
    if is_loopback(name):
        return True
    if is_loopback(bound_to):
        return False
    if name.lower() == bound_to.lower():
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, pages: Pages, host: str, port: int) -> None:
        self.pages = pages
        self.host = host
        self._open: dict[Any, None] = {}
        self._lock = threading.Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks a name server for this machine's name.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= MAX_CONNECTIONS else None
            if oldest is not None:
                del self._open[oldest]
            self._open[request] = None
        if oldest is not None:
            _end(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def end_all(self) -> None:
        with self._lock:
            left = list(self._open)
        for one in left:
            _end(one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no error; nobody reads a trace of another one."""


def _end(connection: Any) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT_S
    server_version, sys_version = "kinesis-spout", ""

    def do_GET(self) -> None:
        self._send(self._answer())

    do_HEAD = do_GET  # noqa: N815  # the library's name

    def version_string(self) -> str:
        return self.server_version

    def log_message(self, *_: object) -> None:
        """Nothing: the terminal is the operator's."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the library for a request that is not HTTP, or of another method."""
        del message, explain
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self._send(text(status, f"{status.phrase}: this page only answers GET and HEAD"))

    def _answer(self) -> Answer:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1:
            return text(HTTPStatus.BAD_REQUEST, "a request must have one Host header")
        if not may_be_asked_as(hosts[0], self.server.host):
            return text(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this page is not served under that name; open it as http://localhost:"
                f"{self.server.server_port}/",
            )
        try:
            return self.server.pages.answer(self.path)
        except Exception as exc:  # noqa: BLE001  # a fault of one page must not end the server
            return text(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"the page could not be made ({type(exc).__name__}); kinesis-spout status shows "
                "the same on a terminal",
            )

    def _send(self, answer: Answer) -> None:
        if answer.tag and self.headers.get("If-None-Match") == answer.tag:
            answer = answer._replace(status=HTTPStatus.NOT_MODIFIED, body=b"")
        self.send_response(answer.status)
        for name, said in HEADERS.items():
            self.send_header(name, said)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.tag:
            self.send_header("ETag", answer.tag)
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
