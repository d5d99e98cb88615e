"""A `ZnodeTree` in ZooKeeper, over kazoo. The only module that translates kazoo's errors.

kazoo has behaviours that a state store cannot accept:

- It retries a lost connection for ever. Here every call has a time limit.
- When the answer to a transaction is lost, its error does not say whether the transaction was
  applied. Here the retry of a transaction marks a refusal as `TransactionRefusedError.uncertain`,
  and the rules in `state.znodes` then look at the nodes.
- It trusts the machine's authorities besides the file that it is given, checks no host name in
  older versions, and drops the reason when a server cannot be trusted: it tries again for ever.
  Here TLS goes by one context, and the reason of each refusal is kept.

It has no `multiRead` (operation 22, in servers from 3.6 on), which has a transaction's form. One
request for 200 nodes costs the client about as much as two single reads, so 10,000 states load
in a quarter of a second instead of more than one.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, TransactionRequest
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    Transaction,
    int_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import Callback, EventType, KazooState, KeeperState, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE, Permissions

from state.errors import (
    EmbeddedZookeeperError,
    StateError,
    StoreAccessError,
    StoreUnavailableError,
)
from state.znodes.tree import (
    Check,
    Create,
    Delete,
    Grant,
    Operation,
    Refusal,
    Set,
    TransactionRefusedError,
    Znode,
)
from state.zookeeper.embedded import resolve_connect_string
from state.zookeeper.security import OPEN, ZookeeperSecurity
from state.zookeeper.servers import EMBEDDED_PREFIX, ConnectString

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_PATHS = 200  # in one `MultiRead`
_LOOK_S = 0.05  # between two looks at why there is no session yet
SESSION_TIMEOUT_S, OPERATION_TIMEOUT_S, CONNECT_TIMEOUT_S = 10.0, 15.0, 10.0
_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
# kazoo logs a line for each attempt to connect. This module logs a lost connection once.
_kazoo_log.setLevel(logging.ERROR)

_TRANSIENT = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.OperationTimeoutError,
)
_ACLS: dict[str, list[Any] | None] = {
    "open": None,
    "creator": CREATOR_ALL_ACL,
    "creator-read": CREATOR_ALL_ACL + READ_ACL_UNSAFE,
}
_REFUSALS: dict[type[Exception], Refusal] = {
    kazoo_errors.NoNodeError: Refusal.NO_NODE,
    kazoo_errors.NodeExistsError: Refusal.NODE_EXISTS,
    kazoo_errors.BadVersionError: Refusal.BAD_VERSION,
    kazoo_errors.NotEmptyError: Refusal.NOT_EMPTY,
}
# The results of the other operations of a refused transaction, which are not the reason.
_NOT_THE_REASON = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


class ConnectionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """`context`: None for connections without TLS.

    - `refusals`: by server, why its last connection was refused; a sentence without an address.
    - `has_reached`: whether a server took a connection.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self.refusals: dict[tuple[str, int], str] = {}
        self.has_reached = False
        self._context = context

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


def refusal_sentence(exc: OSError) -> str:
    """Why a TLS connection failed, and the option to look at."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        if "ostname mismatch" in exc.verify_message or "IP address mismatch" in exc.verify_message:
            return (
                "the server's certificate was issued for another host name; use the certificate's "
                "host name in option zookeeper, or set zookeeperVerifyHostname to false"
            )
        return (
            f"the server's certificate is not trusted ({exc.verify_message}); set option "
            "zookeeperCaFile to the certificate of the authority that signed it"
        )
    if isinstance(exc, ssl.SSLError) and "CERTIFICATE" in (exc.reason or ""):
        return (
            "the server does not accept the client certificate, or requires a client "
            "certificate; check options zookeeperCertFile and zookeeperKeyFile"
        )
    return (
        "the server ended the TLS handshake; check that option zookeeper contains the secure "
        "port, and set zookeeperCertFile if the server requires a client certificate"
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
                is_gone = header.err == kazoo_errors.NoNodeError.code
                answers.append(None if is_gone else kazoo_errors.EXCEPTIONS[header.err]())


class _Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    session_timeout_s: float | None = None
    """The session timeout that the server granted; None before the first connection."""
    was_refused = False
    """Whether the server has refused the identity. kazoo's state shows that for a moment only: it
    closes the client at once.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        connect = self._connection._connect  # noqa: SLF001  # kazoo only logs what was granted

        def connected(*where: Any) -> Any:
            read_timeout_ms, connect_timeout_ms = connect(*where)
            self.session_timeout_s = read_timeout_ms * 1.5 / 1_000  # kazoo waits two thirds of it
            return read_timeout_ms, connect_timeout_ms

        self._connection._connect = connected  # noqa: SLF001

    def _session_callback(self, state: Any) -> None:
        self.was_refused = self.was_refused or state == KeeperState.AUTH_FAILED
        super()._session_callback(state)

    def multi_read_async(self, paths: Sequence[str]) -> Any:
        """Send one `MultiRead`. Returns a pending answer, as kazoo's own methods do."""
        result = self.handler.async_result()
        self._call(MultiRead([GetData(path, None) for path in paths]), result)
        return result


class _Hidden(str):
    """A text that kazoo's log, which shows requests at its lowest level, does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    __str__ = __repr__


class ZookeeperTree:
    """A `ZnodeTree` over one kazoo client. The first call connects it. A forked process connects a
    client of its own. `security` says how it connects, and who may use the nodes that it creates.
    """

    def __init__(
        self,
        address: str,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        operation_timeout_s: float = OPERATION_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        security: ZookeeperSecurity = OPEN,
    ) -> None:
        self._address = address
        self._security = security
        self._was_let_in = False
        self._session_timeout_s = session_timeout_s
        self._operation_timeout_s = operation_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._connecting = threading.Lock()
        self._pid = 0
        self._client: Any = None
        self._connected = threading.Event()
        self._watches: list[_NodeWatch] = []
        # Clients of the process that this one was forked from. They are kept, because only their
        # own process may close them.
        self._inherited: list[Any] = []

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        parts = [paths[start : start + MAX_PATHS] for start in range(0, len(paths), MAX_PATHS)]
        found = self._newest(lambda client: map(client.multi_read_async, parts)) if paths else []
        answers = [answer for part in found for answer in part]
        for answer, path in zip(answers, paths, strict=True):
            if isinstance(answer, Exception):
                raise self._translated(answer, path) from answer
        return answers

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        found = self._newest(lambda client: map(client.get_children_async, paths)) if paths else []
        return [None if names is None else list(names) for names in found]

    def grants(self, paths: Sequence[str]) -> list[tuple[Grant, ...] | None]:
        answers = self._call(lambda client: map(client.get_acls_async, paths))
        return [None if answer is None else tuple(map(_grant, answer[0])) for answer in answers]

    def commit(self, operations: Sequence[Operation]) -> None:
        attempts = 0

        def issue(client: Any) -> list[Any]:
            nonlocal attempts
            attempts += 1
            transaction = client.transaction()
            for operation in operations:
                _add(transaction, operation)
            return [transaction.commit_async()]

        for index, result in enumerate(self._call(issue)[0]):
            if isinstance(result, Exception) and not isinstance(result, _NOT_THE_REASON):
                refusal = _REFUSALS.get(type(result))
                if refusal is None:
                    raise self._translated(result, operations[index].path) from result
                raise TransactionRefusedError(
                    index, refusal, operations[index].path, uncertain=attempts > 1
                )

    def session_id(self) -> int:
        deadline = time.monotonic() + self._operation_timeout_s
        while (session := self._connected_client(deadline).client_id) is None:
            pass  # the connection was lost just now: the call above waits for the next one
        return int(session[0])

    def session_timeout_s(self) -> float | None:
        """The timeout that the server granted to the live session, in seconds; opens a session if
        there is none. It may be another one than was asked for.
        """
        deadline = time.monotonic() + self._operation_timeout_s
        granted: float | None = self._connected_client(deadline).session_timeout_s
        return granted

    def wait_gone(self, path: str, owner_session: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while True:
            changed = threading.Event()

            def issue(client: Any, changed: threading.Event = changed) -> list[Any]:
                return [client.exists_async(path, watch=lambda _: changed.set())]

            stat = self._call(issue)[0]
            if stat is None or stat.ephemeralOwner != owner_session:
                return True
            if not changed.wait(max(0.0, deadline - time.monotonic())):
                return False

    def watch(self, path: str, callback: Callable[[], None]) -> None:
        self._open()  # in a forked process this drops the other process's watches first
        watch = _NodeWatch(path, callback)
        self._watches.append(watch)
        try:
            self._call(lambda client: [watch.set(client)])
        except StateError:
            self._watches.remove(watch)
            raise

    def close(self) -> None:
        with self._connecting:
            client, self._client = self._client, None
            self._watches = []
            if client is not None and self._pid == os.getpid():
                _stop(client)

    def _newest(self, issue: Callable[[Any], Iterable[Any]]) -> list[Any]:
        """As `_call`, but at least as new as the call: a follower may lag. Requests of one session
        are in order, so what is read after the sync is not older than the sync.
        """
        return self._call(lambda client: [client.sync_async("/"), *issue(client)])[1:]

    def _call(self, issue: Callable[[Any], Iterable[Any]]) -> list[Any]:
        """The answers to the requests that `issue` sends. All requests are sent again when the
        connection is lost before the last answer.

        None is the answer of a node that does not exist. Every other error of ZooKeeper is
        translated and raised.
        """
        deadline = time.monotonic() + self._operation_timeout_s
        while True:
            client = self._connected_client(deadline)
            try:
                answers = [_answer(each, deadline) for each in [*issue(client)]]
            except (*_TRANSIENT, kazoo_errors.AuthFailedError) as exc:
                if isinstance(exc, kazoo_errors.AuthFailedError) and not self._was_let_in:
                    raise self._translated(exc, self._address) from exc
                # A server that goes away in the middle of SASL looks like one that refuses, so
                # an identity that was accepted before is tried again.
                if time.monotonic() >= deadline:
                    raise self._unavailable(self._operation_timeout_s) from exc
            except KazooTimeoutError as exc:
                raise self._unavailable(self._operation_timeout_s) from exc
            except kazoo_errors.KazooException as exc:
                raise self._translated(exc, self._address) from exc
            else:
                self._was_let_in = True
                return answers

    def _connected_client(self, deadline: float) -> Any:
        """The client, once it is connected; raises `StoreUnavailableError` after `deadline`."""
        while True:
            client = self._open()
            if self._connected.is_set():
                return client
            revived = self._revive(client)
            remaining_s = max(0.0, deadline - time.monotonic())
            if not remaining_s or (revived and not self._connected.wait(remaining_s)):
                raise self._unavailable(self._operation_timeout_s)

    def _open(self) -> Any:
        if self._pid != os.getpid():
            if self._client is not None:
                self._inherited.append(self._client)
            self._connecting, self._client, self._pid = threading.Lock(), None, os.getpid()
            self._watches = []  # they belong to the process that this one was forked from
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        servers = ConnectString.parse(resolve_connect_string(self._address))
        if not servers.is_known():
            raise StoreUnavailableError(
                f"no host name of the ZooKeeper address {self._address!r} can be resolved",
                "check the host names in option zookeeper",
            )
        security = self._security.loaded()
        handler = ConnectionHandler(security.tls_context() if security.tls else None)
        client = _Client(
            handler=handler,
            hosts=servers.hosts(),
            timeout=self._session_timeout_s,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=0.1,
                backoff=2,
                max_delay=2.0,
                sleep_func=time.sleep,  # noqa: TID251  # kazoo requires its handler's own function
            ),
            logger=_kazoo_log,
            default_acl=_ACLS[security.node_acl],
            **_identity(security),
        )
        self._connected = client.start_async()
        self._await_session(client, len(set(servers.servers)))
        client.add_listener(functools.partial(self._on_state, client))
        self._on_state(client, KazooState.CONNECTED)
        return client

    def _await_session(self, client: Any, servers: int) -> None:
        """Wait for the first session. Raises when none can come any more: kazoo tries for ever."""
        deadline = time.monotonic() + self._connect_timeout_s
        while not self._connected.wait(_LOOK_S):
            if client.was_refused:
                error = self._translated(kazoo_errors.AuthFailedError(), self._address)
            elif len(client.handler.refusals) >= servers or time.monotonic() >= deadline:
                error = self._not_connected(client.handler)
            else:
                continue
            # kazoo's stop waits for the connection attempt, which may take longer than the caller
            # should wait.
            threading.Thread(target=_stop, args=(client,), daemon=True).start()
            raise error

    def _on_state(self, client: Any, state: str) -> None:
        """Called by kazoo when the connection is lost or made. Must not block."""
        if state == KazooState.SUSPENDED:
            _log.warning(
                "the connection to ZooKeeper at %s was lost. The client reconnects", self._address
            )
        elif state == KazooState.CONNECTED:
            for watch in tuple(self._watches):
                watch.set_and_tell(client)

    def _revive(self, client: Any) -> bool:
        """False if the client has given up, and is dropped; else it reconnects by itself."""
        if client.client_state in {KeeperState.CLOSED, KeeperState.AUTH_FAILED}:
            with self._connecting:
                if self._client is client:
                    self._client = None
                    _stop(client)
            if client.was_refused and not self._was_let_in:
                raise self._translated(kazoo_errors.AuthFailedError(), self._address)
            return False
        if self._address.startswith(EMBEDDED_PREFIX):
            # Starts the server if it has ended; its port may then be another one. One that cannot
            # be started now is an outage, as that of any other server: it ran before.
            try:
                client.set_hosts(resolve_connect_string(self._address))
            except EmbeddedZookeeperError as exc:
                raise StoreUnavailableError(exc.message, exc.remedy) from exc
        return True

    def _not_connected(self, handler: ConnectionHandler) -> StateError:
        if handler.refusals:
            return StoreAccessError(
                f"no TLS connection to ZooKeeper at {self._address}: "
                f"{next(iter(handler.refusals.values()))}"
            )
        if handler.has_reached and not self._security.tls:
            return StoreUnavailableError(
                f"ZooKeeper at {self._address} accepted the connection, but opened no session "
                f"within {self._connect_timeout_s:g} s",
                "check that the server is running, and that option zookeeperTls is true if the "
                "server requires TLS",
            )
        return self._unavailable(self._connect_timeout_s)

    def _unavailable(self, waited_s: float) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"ZooKeeper at {self._address} did not answer within {waited_s:g} s",
            "check that the servers are running and can be reached from this machine",
        )

    def _translated(self, exc: Exception, where: str) -> StateError:
        if isinstance(exc, kazoo_errors.AuthFailedError):
            return StoreAccessError(
                f"ZooKeeper at {self._address} does not accept {self._security.identity()}",
                "check the options zookeeperUser and zookeeperPasswordFile",
            )
        if isinstance(exc, kazoo_errors.NoAuthError):
            return StoreAccessError(
                f"ZooKeeper at {self._address} denies access to {where} for "
                f"{self._security.identity()}",
                "check the user and the password, or the ACL of the znode",
            )
        if isinstance(exc, kazoo_errors.InvalidACLError):
            return StoreAccessError(
                f"ZooKeeper at {self._address} has not authenticated this client: option "
                f"zookeeperAcl {self._security.node_acl!r} needs an identity that can own {where}",
                "check that the server supports the authentication in option zookeeperAuth",
            )
        return StoreUnavailableError(
            f"ZooKeeper at {self._address} refused a request for {where} ({type(exc).__name__} "
            f"{exc})",
            "read the ZooKeeper server's log",
        )


class _NodeWatch:
    """A persistent watch of one node: one of ZooKeeper's fires once, and kazoo drops it when the
    connection is lost. The callback runs in kazoo's thread for watches. Setting it never blocks.

    It is set again before the callback runs, so a reader that reacts to it misses no later change.
    A request to set it that fails is not repeated here: it fails only with the connection,
    and the next connection sets all watches again.
    """

    def __init__(self, path: str, callback: Callable[[], None]) -> None:
        self._path = path
        self._callback = callback
        self._client: Any = None

    def set(self, client: Any) -> Any:
        """Send the request that sets the watch; returns kazoo's pending answer."""
        self._client = client
        # `exists` also watches for the creation of a node that does not exist yet.
        return client.exists_async(self._path, watch=self._on_event)

    def set_and_tell(self, client: Any) -> None:
        """Set the watch, and call back once it is set: the node may have changed in between."""
        self.set(client).rawlink(functools.partial(self._tell, client))

    def _on_event(self, event: Any) -> None:
        # NONE is a change of the connection. After a lost one, `ZookeeperTree` sets the watches.
        if event.type != EventType.NONE:
            self.set_and_tell(self._client)

    def _tell(self, client: Any, answer: Any) -> None:
        """Call back, but in kazoo's thread for watches. This method runs in its thread for answers,
        on which every call of the store waits.
        """
        if answer.successful():
            client.handler.dispatch_callback(Callback("watch", self._callback, ()))


def _identity(security: ZookeeperSecurity) -> dict[str, Any]:
    """Kazoo's arguments for the identity. The password is loaded."""
    match security.auth:
        case "digest":
            return {"auth_data": [("digest", _Hidden(f"{security.user}:{security.password}"))]}
        case "sasl":
            return {
                "sasl_options": {
                    "mechanism": "DIGEST-MD5",
                    "service": "zookeeper",
                    "username": security.user,
                    "password": security.password,
                }
            }
        case "kerberos":
            return {"sasl_options": {"mechanism": "GSSAPI", "service": "zookeeper"}}
    return {}


def _add(transaction: TransactionRequest, operation: Operation) -> None:
    match operation:
        case Check(path, version):
            transaction.check(path, version)
        case Create(path, data, ephemeral):
            transaction.create(path, data, ephemeral=ephemeral)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path):
            transaction.delete(path)


def _grant(entry: Any) -> Grant:
    scheme, name = entry.id.scheme, entry.id.id
    # A digest has the password's hash behind the name.
    name = name.split(":", 1)[0] if scheme == "digest" else name
    return Grant(
        identity=name if scheme == "world" else f"{scheme} {name}",
        may_write=bool(entry.perms & Permissions.WRITE),
        may_create=bool(entry.perms & Permissions.CREATE),
        may_administer=bool(entry.perms & Permissions.ADMIN),
    )


def _answer(pending: Any, deadline: float) -> Any:
    try:
        return pending.get(timeout=max(0.0, deadline - time.monotonic()))
    except kazoo_errors.NoNodeError:
        return None


def _stop(client: Any) -> None:
    """Close the session and the connection."""
    # kazoo raises when its threads end too slowly. They are daemon threads and end by themselves.
    try:
        client.stop()
        client.close()
    except kazoo_errors.KazooException:
        _log.debug("the ZooKeeper client did not stop in time", exc_info=True)
