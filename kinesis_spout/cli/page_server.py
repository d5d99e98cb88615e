"""The HTTP server of the page: it answers GET and HEAD, for names of this machine only.

A page of another site may make a browser ask this server (DNS rebinding), so a request must name
this machine in its Host header. Answers say that nothing but their own style and script may run,
and are stored nowhere. Each connection has one request and some seconds. There are at most
`MAX_CONNECTIONS`: a further one ends the oldest.
"""

import errno
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from kinesis_spout.errors import ConfigError
from kinesis_spout.http_server import HttpServer
from kinesis_spout.page import policy

LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 32
TIMEOUT_S = 10.0
HEADERS = {
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


def text(status: HTTPStatus, sentence: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())


class PageServer(HttpServer):
    """Serves from threads of its own. `answer` gets the path and the query of a request, as they
    came; several threads call it. Port 0 takes a free one. A context manager. Raises
    `ConfigError` when the address cannot be bound.
    """

    daemon_threads = True
    block_on_close = False
    max_connections = MAX_CONNECTIONS

    def __init__(self, answer: Callable[[str], Answer], port: int, host: str = LOOPBACK) -> None:
        self.answer = answer
        self.host = host
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as exc:
            number = getattr(exc, "errno", errno.EADDRINUSE)  # a port above 65535 has none
            if number in {errno.EADDRINUSE, errno.EACCES}:
                problem = f"is not available on {host}: {exc}"
                raise ConfigError.of("--port", problem, port, remedy="choose another port") from exc
            problem, remedy = f"is not available: {exc}", "pass an address of this machine"
            raise ConfigError.of("--host", problem, host, remedy=remedy) from exc
        self.port = self.server_port

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.1,), name="page", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends open connections."""
        self.shutdown()
        self.server_close()
        self.end_connections()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine's own."""
    return ip_address(host).is_loopback if _is_address(host) else host.lower() == "localhost"


def _may_be_asked_as(host: str, bound_to: str) -> bool:
    """Whether a request with this Host header is for us: it names this machine; or, where the
    server listens elsewhere too, an address, or the name that it was given. A page of another site
    has a name that is neither.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if is_loopback(name) or is_loopback(bound_to):
        return is_loopback(name)
    return name == bound_to.lower() or _is_address(name)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        self._send(self._answer())

    do_HEAD = do_GET  # noqa: N815  # the library's name

    def version_string(self) -> str:
        return "kinesis-spout"

    def log_message(self, *_: object) -> None:
        """Nothing: the terminal is the operator's."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the library for a request that is not HTTP, or of another method."""
        del message, explain
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self._send(text(status, f"{status.phrase}: this server only accepts GET and HEAD"))

    def _answer(self) -> Answer:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1:
            return text(HTTPStatus.BAD_REQUEST, "a request must have one Host header")
        if not _may_be_asked_as(hosts[0], self.server.host):
            return text(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the server does not serve this host name; open "
                f"http://localhost:{self.server.port}/",
            )
        try:
            answer = self.server.answer(self.path)
        except Exception as exc:  # noqa: BLE001  # a fault of one answer must not end the server
            return text(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"the server could not make the page ({type(exc).__name__}); run kinesis-spout "
                "status to see the same information on a terminal",
            )
        if answer.tag and self.headers.get("If-None-Match") == answer.tag:
            return answer._replace(status=HTTPStatus.NOT_MODIFIED, body=b"")
        return answer

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        headers = {**HEADERS, "Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
        if answer.tag:
            headers["ETag"] = answer.tag
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET, HEAD"
        for name, said in headers.items():
            self.send_header(name, said)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
