"""ZooKeeper connect strings: `host:port,host:port/chroot`, or `embedded:<directory>` for an
embedded server (`state.zookeeper.embedded`). Imports no kazoo.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from state.errors import InvalidStoreSettingError
from state.znodes.paths import valid_name

EMBEDDED_PREFIX = "embedded:"
DEFAULT_PORT = 2181
_SERVER = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:/,\[\]@]+))(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class ConnectString:
    """The servers as (host, port), and the chroot, which is empty or has a leading slash and no
    trailing one.
    """

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> ConnectString:
        """Read `host[:port],.../chroot`; the port is 2181 unless given. Raises
        `InvalidStoreSettingError`.
        """
        servers, slash, chroot = text.strip().partition("/")
        parts = [part for part in chroot.strip("/").split("/") if slash and part]
        for part in parts:
            valid_name("ZooKeeper chroot", part)
        return cls(
            tuple(_server(each.strip(), text) for each in servers.split(",")),
            "".join(f"/{part}" for part in parts),
        )

    def hosts(self) -> str:
        """The servers as one text: `a:2181,[::1]:2181`."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers
        )

    def is_known(self) -> bool:
        """Whether any of the host names can be resolved. Blocks on the resolver."""
        return any(_is_known(host, port) for host, port in self.servers)


def _is_known(host: str, port: int) -> bool:
    try:
        return bool(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError:
        return False


def _server(text: str, whole: str) -> tuple[str, int]:
    match = _SERVER.fullmatch(text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise InvalidStoreSettingError(
            f"{whole!r} is not a ZooKeeper connect string, because {text!r} is not a server",
            "use host:port,host:port/chroot or embedded:<directory>",
        )
    return match["v6"] or match["host"], port
