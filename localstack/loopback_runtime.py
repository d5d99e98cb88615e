"""Runs LocalStack, in LocalStack's own environment, on loopback only.

It does three things that LocalStack has no setting for:

- LocalStack's gateway listens on every interface, whatever GATEWAY_LISTEN says (it passes no
  interface on for IPv4), and accepts any credentials. Here it listens on loopback.
- LocalStack may look for other hosts (certificates, updates, installers). Here that is refused.
- LocalStack continues when the process that started it is killed. Here that process holds
  standard input open, and its end counts as a SIGTERM.
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
_LOCAL_NAMES = frozenset({"", "localhost", "0.0.0.0"})  # noqa: S104  # a destination here


def is_loopback(host: object) -> bool:
    """Whether a destination is this machine.

    A name other than localhost is not, because its look-up would leave the machine.
    """
    if host is None or host in _LOCAL_NAMES:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        return text in _LOCAL_NAMES or ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def refuse_other_hosts(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook. It refuses, and logs, connections and look-ups that would leave the
    machine.
    """
    if event in {"socket.connect", "socket.sendto"}:
        address = arguments[1]
        # The address of a Unix socket is a path, not a tuple, and is local.
        host = address[0] if isinstance(address, tuple) and address else None
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if not is_loopback(host):
        sys.stderr.write(f"refused: {event} to {host!r}\n")
        raise ConnectionRefusedError(
            f"{host!r} is not on this machine: LocalStack may only reach this machine"
        )


def end_with_the_starter() -> None:
    """Wait for the end of standard input, then make LocalStack shut down, and its emulator with
    it.
    """
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    # Imported by name: only LocalStack's environment has them, not the one of the type checks.
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
