"""kazoo's client as a state store needs it: its handler, with our own connections, and a request
that reads many nodes.

kazoo trusts the machine's authorities besides the file that it is given, checks no host name in
older versions, and drops the reason when a server cannot be trusted: it tries again for ever. Here
TLS goes by one context, and the reason of each refusal is kept.

It has no `multiRead` (operation 22, in servers from 3.6 on), which has a transaction's form. One
request for 200 nodes costs the client about as much as two single reads, so 10,000 states load
in a quarter of a second instead of more than one.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    Transaction,
    int_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

from state.znodes.tree import Znode

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PATHS = 200


class ConnectionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """`context`: None for connections without TLS.

    - `refusals`: by server, why its last connection was refused; a sentence without an address.
    - `has_reached`: whether a server took a connection.
    - `on_refusal`: called in kazoo's thread after each one.
    """

    def __init__(self, context: ssl.SSLContext | None, on_refusal: Callable[[], None]) -> None:
        super().__init__()
        self.refusals: dict[tuple[str, int], str] = {}
        self.has_reached = False
        self._context = context
        self._on_refusal = on_refusal

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_kazoos_own: Any,
    ) -> socket.socket | _Reporting:
        server = (hostname or address[0], address[1])
        plain = socket.create_connection(address, timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.has_reached = True
        if self._context is None:
            return plain
        try:
            secured = self._context.wrap_socket(plain, server_hostname=server[0])
        except OSError as exc:
            plain.close()
            self._refused(server, exc)
            raise
        return _Reporting(secured, lambda exc: self._refused(server, exc))

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        """Like the inherited one, but it does not wait while a TLS socket holds answers that were
        decrypted together with an earlier one: the system's socket has no more to read then.
        """
        held = [each for each in rlist if isinstance(each, _Reporting) and each.pending() > 0]
        if not held:
            return super().select(rlist, wlist, xlist, timeout)
        readable, writable, broken = super().select(rlist, wlist, xlist, 0)
        return [*held, *(each for each in readable if each not in held)], writable, broken

    def _refused(self, server: tuple[str, int], exc: OSError) -> None:
        self.refusals[server] = refusal_sentence(exc)
        self._on_refusal()


def refusal_sentence(exc: OSError) -> str:
    """Why a TLS connection failed, and the option to look at."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        if "ostname mismatch" in exc.verify_message or "IP address mismatch" in exc.verify_message:
            return (
                "its certificate was issued for another host name; use that name in option "
                "zookeeper, or set zookeeperVerifyHostname to false"
            )
        return (
            f"its certificate is not trusted ({exc.verify_message}); set option zookeeperCaFile "
            "to the certificate of the authority that signed it"
        )
    if isinstance(exc, ssl.SSLError) and "CERTIFICATE" in (exc.reason or ""):
        return (
            "it does not accept the client's certificate, or requires one; check options "
            "zookeeperCertFile and zookeeperKeyFile"
        )
    return (
        "it ended the TLS handshake; check that option zookeeper has the server's secure port, "
        "and set zookeeperCertFile if it requires a certificate"
    )


class _Reporting:
    """A TLS socket that tells of errors: TLS 1.3 refuses a certificate in the first answer."""

    def __init__(self, secured: ssl.SSLSocket, tell: Callable[[OSError], None]) -> None:
        self._secured = secured
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._secured, name)

    def recv(self, size: int) -> bytes:
        try:
            return self._secured.recv(size)
        except ssl.SSLError as exc:
            if not isinstance(exc, ssl.SSLWantReadError | ssl.SSLWantWriteError):
                self._tell(exc)
            raise


class MultiRead(Transaction):  # type: ignore[misc]  # kazoo has no types
    """A request in the form that kazoo's connection sends; its operations are `GetData`."""

    type = 22

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> list[Znode | Exception | None]:
        """For each path the node, or None where there is none, or the error."""
        answers: list[Znode | Exception | None] = []
        while True:
            header, offset = MultiHeader.deserialize(buffer, offset)
            if header.done:
                return answers
            if header.type == GetData.type:
                data, offset = read_buffer(buffer, offset)
                stat = ZnodeStat._make(stat_struct.unpack_from(buffer, offset))
                offset += stat_struct.size
                answers.append(Znode(bytes(data or b""), stat.version, stat.ephemeralOwner))
            else:
                offset += int_struct.size
                is_gone = header.err == NoNodeError.code
                answers.append(None if is_gone else EXCEPTIONS[header.err]())
