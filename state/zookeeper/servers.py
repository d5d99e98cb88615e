"""The servers of a ZooKeeper: the connect string that names them, and what each says of itself.
Imports no kazoo, and opens no session.

A connect string is `host:port,host:port/chroot`, or `embedded:<directory>` for an embedded server
(`state.zookeeper.embedded`). A server answers the four-letter word `srvr`, unless it is told
otherwise: https://zookeeper.apache.org/doc/current/zookeeperAdmin.html (The Four Letter Words)
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from state.errors import InvalidStoreSettingError, StoreUnavailableError
from state.znodes.paths import valid_name

EMBEDDED_PREFIX = "embedded:"
DEFAULT_PORT = 2181
_SERVER = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:/,\[\]@]+))(?::(?P<port>[0-9]{1,5}))?"
)
_LATE_SERVER = re.compile(r",[^/,]+:[0-9]+(?:/|,|$)")
_MAX_BYTES = 65_536
_LINE = re.compile(r"^(Zookeeper version|Connections|Mode|Node count): *([^\s,-]+)", re.MULTILINE)
_LOCAL_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class ConnectString:
    """The servers as (host, port), and the chroot: empty, or `/a/b`."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> ConnectString:
        """Read `host[:port],.../chroot` (port 2181). Raises `InvalidStoreSettingError`."""
        names, _, chroot = text.strip().partition("/")
        if _LATE_SERVER.search(chroot):  # else the job would use the first server alone
            raise _refused(
                text,
                "a server follows the chroot",
                "use the form host:port,host:port/chroot, with the chroot only at the end",
            )
        parts = [valid_name("ZooKeeper chroot", part) for part in chroot.split("/") if part]
        servers = []
        for name in map(str.strip, names.split(",")):
            match = _SERVER.fullmatch(name)
            port = int(match["port"] or DEFAULT_PORT) if match else 0
            if match is None or not 0 < port < 65536:
                raise _refused(
                    text,
                    f"{name!r} is not a server",
                    "use host:port,host:port/chroot or embedded:<directory>",
                )
            servers.append((match["v6"] or match["host"], port))
        return cls(tuple(servers), "".join(f"/{part}" for part in parts))

    def hosts(self) -> str:
        """The servers as one text: `a:2181,[::1]:2181`."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers
        )

    def is_known(self) -> bool:
        """Whether any of the host names can be resolved. Blocks on the resolver."""
        for host, port in self.servers:
            with suppress(OSError):
                if socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                    return True
        return False


def _refused(text: str, why: str, remedy: str) -> InvalidStoreSettingError:
    """A text with an `@` may have a password before it, and is not shown."""
    if "@" in text:
        return InvalidStoreSettingError(
            "a ZooKeeper connect string must not contain a user name or a password",
            "use the options zookeeperAuth, zookeeperUser and zookeeperPasswordFile",
        )
    return InvalidStoreSettingError(
        f"{text!r} is not a ZooKeeper connect string, because {why}", remedy
    )


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
    answer = b""
    try:
        with ExitStack() as stack:
            plain = stack.enter_context(socket.create_connection((host, port), timeout=timeout_s))
            connection = plain
            if context is not None:
                secured = context.wrap_socket(plain, server_hostname=host)
                connection = stack.enter_context(secured)
            connection.sendall(b"srvr")
            while len(answer) < _MAX_BYTES:  # or until the server closes, after its answer
                connection.settimeout(max(0.001, deadline_s - time.monotonic()))
                part = connection.recv(4096)
                if not part:
                    break
                answer += part
    except TimeoutError as exc:
        raise StoreUnavailableError(
            f"{where} did not answer within {timeout_s:g} s",
            "check that the server is running, that no firewall blocks it, and that option "
            "zookeeperTls is true if the server requires TLS",
        ) from exc
    except (ssl.SSLError, ConnectionResetError):
        return ServerWords()  # it is there, and wants TLS, none, or another certificate
    except OSError as exc:
        raise StoreUnavailableError(
            f"cannot reach {where} ({exc.strerror or type(exc).__name__})",
            "check the server's address, and check that the server is running",
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
