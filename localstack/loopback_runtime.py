"""Runs in LocalStack's own environment: LocalStack on loopback only, until its starter is gone or
says so.

Three things that LocalStack has no setting for. Its gateway listens on every interface whatever
GATEWAY_LISTEN says (it passes no interface on for IPv4), and accepts any credentials. It may look
for hosts outside (certificates, updates, installers). And it goes on when the process that started
it was killed: here that closes standard input, which is taken for a SIGTERM.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import signal
import sys
import threading
from importlib import import_module
from typing import Any

LOOPBACK = "127.0.0.1"
_LOCAL_NAMES = frozenset({"", "localhost", "0.0.0.0"})  # noqa: S104  # as a destination it is this machine


def is_loopback(host: object) -> bool:
    """Whether a destination is this machine itself; names other than localhost are not, since
    asking for them leaves it.
    """
    if host is None or host in _LOCAL_NAMES:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        return text in _LOCAL_NAMES or ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def refuse_other_hosts(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: connections and look-ups that would leave the machine fail, and the log says
    which.
    """
    if event in {"socket.connect", "socket.sendto"}:
        address = arguments[1]
        host = (
            address[0] if isinstance(address, tuple) and address else None
        )  # a path of a Unix socket is local
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if not is_loopback(host):
        sys.stderr.write(f"refused: {event} to {host!r}\n")
        raise ConnectionRefusedError(
            f"{host!r} is not on this machine, and LocalStack is kept to it"
        )


def end_with_the_starter() -> None:
    """Wait for the end of standard input, then ask LocalStack to shut down, which ends its emulator
    as well.
    """
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    # by name, since only LocalStack's environment has them: type checks run in the project's
    endpoints: Any = import_module("twisted.internet.endpoints")
    endpoints.TCP4ServerEndpoint = functools.partial(
        endpoints.TCP4ServerEndpoint, interface=LOOPBACK
    )
    sys.addaudithook(refuse_other_hosts)
    localstack: Any = import_module("localstack.runtime.main")
    threading.Thread(target=end_with_the_starter, daemon=True).start()
    localstack.main()


if __name__ == "__main__":
    main()
