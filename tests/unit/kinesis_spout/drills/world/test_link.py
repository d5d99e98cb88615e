"""A link forwards, is cut, stalls and is restored; and it ends all that it started."""

from __future__ import annotations

import socket
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.world.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 10.0
SHORT_S = 0.1


@contextmanager
def echoing() -> Iterator[str]:
    """The address of a server that sends back what it gets, connection after connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo(connection: socket.socket) -> None:
        with closing(connection):
            while data := connection.recv(65_536):
                connection.sendall(data)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        server.join(LIMIT_S)


def connect(link: Link) -> socket.socket:
    host, _, port = link.address.partition(":")
    return socket.create_connection((host, int(port)), timeout=LIMIT_S)


def told(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return receive(connection, len(text))


def receive(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (data := connection.recv(count - len(found))):
        found += data
    return found


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_cut_closes_what_is_open_and_what_is_opened_until_it_is_restored() -> None:
    with echoing() as server, Link(server) as link:
        with closing(connect(link)) as connection:
            assert told(connection, b"before") == b"before"
            link.cut()
            assert is_closed(connection)
        with closing(connect(link)) as connection:
            assert is_closed(connection)
        link.restore()
        with closing(connect(link)) as connection:
            assert told(connection, b"after") == b"after"


def test_a_stall_holds_everything_back_and_delivers_it_when_it_is_restored() -> None:
    """Nobody sees an error meanwhile, neither on an open connection nor on a new one."""
    with echoing() as server, Link(server) as link, closing(connect(link)) as one:
        assert told(one, b"before") == b"before"
        link.stall()
        with closing(connect(link)) as other:
            for connection in (one, other):
                connection.sendall(b"held")
                connection.settimeout(SHORT_S)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
                connection.settimeout(LIMIT_S)
            link.restore()
            assert [receive(connection, 4) for connection in (one, other)] == [b"held"] * 2
