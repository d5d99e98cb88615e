"""A TCP link on loopback that a drill can cut: it stands between a client and a server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_BYTES = 65_536
_BACKLOG = 128
_CLOSING_LIMIT_S = 5.0


class Link:
    """Forwards every connection to `target`, a `host:port`, until it is cut or stalled.

    - `cut` closes all connections and every new one at once: both sides see an error.
    - `stall` forwards nothing and closes nothing: neither side sees anything, as when a network
      drops all packets.
    - `restore` ends both. What a stall has held back is delivered then.

    All methods may be called from any thread. Use it in a with block.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._flows = threading.Event()
        self._flows.set()
        self._is_cut = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._pumps: set[threading.Thread] = set()
        self._acceptor = threading.Thread(target=self._accept, name="link", daemon=True)

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End every connection and thread. Blocks for some seconds at most."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self.cut()
        self._flows.set()
        self._acceptor.join(_CLOSING_LIMIT_S)
        with self._lock:
            pumps = list(self._pumps)
        for pump in pumps:
            pump.join(_CLOSING_LIMIT_S)

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        self._flows.clear()

    def restore(self) -> None:
        with self._lock:
            self._is_cut = False
        self._flows.set()

    def _accept(self) -> None:
        for client in self._clients():
            try:
                server = socket.create_connection(self._target, timeout=_CLOSING_LIMIT_S)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._join(client, server)

    def _clients(self) -> Iterator[socket.socket]:
        """The connections that clients open, until the listener is closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            yield client

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                client.close()
                server.close()
                return
            self._open |= {client, server}
            ended: list[socket.socket] = []
            for source, sink in ((client, server), (server, client)):
                pump = threading.Thread(
                    target=self._pump, args=(source, sink, ended), name="link-pump", daemon=True
                )
                self._pumps.add(pump)
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, ended: list[socket.socket]) -> None:
        """Forward one direction to its end. The second of a pair to end closes both sockets."""
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._flows.wait()
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            self._pumps.discard(threading.current_thread())
            ended.append(source)
            if len(ended) == 2:
                self._open -= {source, sink}
                source.close()
                sink.close()
