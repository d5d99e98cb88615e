"""What a ZooKeeper server says of itself: its answer to the four-letter word `srvr`, which servers
allow unless they are told otherwise. Imports no kazoo, and opens no session.

https://zookeeper.apache.org/doc/current/zookeeperAdmin.html (The Four Letter Words)
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from contextlib import closing
from dataclasses import dataclass

from state.errors import StoreUnavailableError

_WORD = b"srvr"
_MAX_BYTES = 65_536
_LINE = re.compile(r"^(Zookeeper version|Connections|Mode|Node count): *([^\s,-]+)", re.MULTILINE)
_LOCAL_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWords:
    """A server's version, its role (`leader`, `follower`, `standalone` ...), how many clients are
    connected, the one that asks included, and how many nodes it has. All are None for a server that
    answers, and does not say.
    """

    version: str | None = None
    role: str | None = None
    connections: int | None = None
    nodes: int | None = None


def ask_server(
    host: str, port: int, *, timeout_s: float, context: ssl.SSLContext | None = None
) -> ServerWords:
    """Ask one server, with TLS where a context is given. Blocks for at most `timeout_s`, and the
    resolver's time. A server and a client that do not trust each other say nothing; a session says
    why. Raises `StoreUnavailableError`.
    """
    deadline_s = time.monotonic() + timeout_s
    where = f"ZooKeeper server {host}:{port}"
    try:
        plain = socket.create_connection((host, port), timeout=timeout_s)
        with closing(plain):
            connection = plain
            if context is not None:
                connection = context.wrap_socket(plain, server_hostname=host)
            with closing(connection):
                connection.sendall(_WORD)
                answer = _read(connection, deadline_s)
    except TimeoutError as exc:
        raise StoreUnavailableError(
            f"{where} did not answer within {timeout_s:g} s",
            "check that it runs, that no firewall blocks it, and whether it requires TLS (option "
            "zookeeperTls)",
        ) from exc
    except (ssl.SSLError, ConnectionResetError):
        return ServerWords()  # it is there, and wants TLS, none, or another certificate
    except OSError as exc:
        raise StoreUnavailableError(
            f"{where} cannot be reached ({exc.strerror or type(exc).__name__})",
            "check its address, and that it runs",
        ) from exc
    return parse_words(answer.decode(errors="replace"))


def ask_local(port: int) -> ServerWords:
    """Ask a server on this machine; all is None without an answer. Blocks for at most 2 s."""
    try:
        return ask_server("127.0.0.1", port, timeout_s=_LOCAL_LIMIT_S)
    except StoreUnavailableError:
        return ServerWords()


def parse_words(text: str) -> ServerWords:
    """Read an answer to `srvr`. A text without a version is a refusal."""
    found = dict(_LINE.findall(text))
    counts = {name: int(value) for name, value in found.items() if value.isdigit()}
    return ServerWords(
        version=found.get("Zookeeper version"),
        role=found.get("Mode"),
        connections=counts.get("Connections"),
        nodes=counts.get("Node count"),
    )


def _read(connection: socket.socket, deadline_s: float) -> bytes:
    """Until the server closes, which it does after its answer."""
    answer = b""
    while len(answer) < _MAX_BYTES:
        connection.settimeout(max(0.001, deadline_s - time.monotonic()))
        part = connection.recv(4096)
        if not part:
            break
        answer += part
    return answer
