"""The standard library's threaded HTTP server, with connections that can be ended."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any


class HttpServer(ThreadingHTTPServer):
    """Each connection has a thread. There are at most `max_connections`: a further one ends the
    oldest. The constructor binds the address, and raises OSError or OverflowError where it cannot.
    """

    max_connections: float = float("inf")
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self._connections: dict[Any, None] = {}  # the oldest first
        self._connections_lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def end_connections(self, most: float = 0) -> None:
        """End the oldest connections, so that this many are left at most. Both directions are shut,
        so that a thread blocked in a read sees the end.
        """
        with self._connections_lock:
            while len(self._connections) > most:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                shut(oldest)

    # what the library calls -----------------------------------------------------------------------
    def server_bind(self) -> None:
        """Not that of HTTPServer, which asks a name server for this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.end_connections(self.max_connections - 1)
        with self._connections_lock:
            self._connections[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._connections_lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error; nobody reads a trace of another one."""


def shut(connection: socket.socket) -> None:
    """Shut both directions."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
