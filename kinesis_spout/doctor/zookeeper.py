"""Checks of ZooKeeper, from this process. Nothing stays behind in it."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.doctor.checkup import Check
from kinesis_spout.doctor.finding import Finding, failed, not_tried, ok, warning
from state.errors import StateError, StoreUnavailableError
from state.znodes.tree import Create, Delete, Operation, TransactionRefusedError
from state.zookeeper.connect_string import ConnectString
from state.zookeeper.embedded import LOCK_NAME, embedded_directory, resolve_connect_string
from state.zookeeper.security import OPEN, ZookeeperSecurity
from state.zookeeper.server_words import ServerWords, ask_server
from state.zookeeper.tree import ZookeeperTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SERVERS, SESSION = "ZooKeeper servers", "ZooKeeper session"
LATENCY, ACCESS = "ZooKeeper latency", "ZooKeeper access"
SESSION_TIMEOUT_S = 10.0  # what a job asks for
PINGS = 25
SLOW_MS = 100.0  # a batch makes a handful of these calls, one after the other
_SERVER_LIMIT_S = 2.0
_CALL_LIMIT_S = 6.0
_STARTING_S = 40.0  # an embedded server is started by the first call


@dataclass(slots=True)
class ZookeeperCheckup:
    """The checks of one ensemble. `path`: what the job is to write below, as names under the
    chroot: the root, and the application and the stream where they are known.
    """

    address: str
    path: tuple[str, ...]
    security: ZookeeperSecurity = OPEN
    _tree: ZookeeperTree = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._tree = ZookeeperTree(
            self.address,
            session_timeout_s=SESSION_TIMEOUT_S,
            operation_timeout_s=_CALL_LIMIT_S,
            connect_timeout_s=_CALL_LIMIT_S,
            security=self.security,
        )

    def close(self) -> None:
        self._tree.close()

    def checks(self) -> list[Check]:
        directory = embedded_directory(self.address)
        if directory is not None and never_ran(self.address):
            return [Check(name=SERVERS, look=lambda: [_place_of(directory)], is_remote=False)]
        return [
            Check(name=SERVERS, look=self.ask_servers, limit_s=_STARTING_S),
            Check(name=SESSION, look=self.look_at_session, needs=[SERVERS]),
            Check(name=LATENCY, look=self.look_at_latency, needs=[SESSION]),
            Check(name=ACCESS, look=self.look_at_access, needs=[SESSION]),
        ]

    def ask_servers(self) -> Iterator[Finding]:
        """Each server by itself: a client hides that one is missing."""
        servers = ConnectString.parse(resolve_connect_string(self.address)).servers
        context = self.security.tls_context() if self.security.tls else None
        answers, errors = [], []
        for host, port in servers:
            try:
                words = ask_server(host, port, timeout_s=_SERVER_LIMIT_S, context=context)
                answers.append((f"{host}:{port}", words))
            except StoreUnavailableError as exc:
                errors.append(str(exc))
        for sentence in errors:
            if answers:
                yield warning(SERVERS, f"{sentence}; the others answer")
            else:
                yield failed(SERVERS, sentence, unreachable=True)
        if answers:
            yield ok(SERVERS, "; ".join(f"{name} {_shown(words)}" for name, words in answers))

    def look_at_session(self) -> Iterator[Finding]:
        yield session_finding(self._tree.session_timeout_s() or SESSION_TIMEOUT_S)

    def look_at_latency(self) -> Iterator[Finding]:
        """Of a read as a job makes it: a sync, and the node."""
        times_ms = []
        for _ in range(PINGS):
            began_s = time.monotonic()
            self._tree.read([self._paths[0]])
            times_ms.append((time.monotonic() - began_s) * 1_000)
        yield latency_finding(times_ms)

    def look_at_access(self) -> Iterator[Finding]:
        """Reads, creates and deletes below the deepest node that is there.

        The scratch node is created and deleted in one transaction, with the nodes above it that
        are missing. So nothing of it is ever seen, whatever ends this process.
        """
        paths = self._paths
        missing: list[str] = []
        try:
            # From below: this client may have no access to the nodes above its own.
            while paths and self._tree.read([paths[-1]])[0] is None:
                missing.insert(0, paths.pop())
        except StoreUnavailableError:
            raise
        except StateError as exc:
            yield failed(ACCESS, str(exc))
            return
        below = paths[-1] if paths else "/"
        made = [*missing, f"{self._paths[-1]}/doctor-{secrets.token_hex(8)}"]
        operations: list[Operation] = [Create(path, b"") for path in made]
        operations += [Delete(path) for path in reversed(made)]
        try:
            self._tree.commit(operations)
        except TransactionRefusedError:
            yield warning(ACCESS, f"{below} was changed by another process; try again")
            return
        except StoreUnavailableError:
            raise
        except StateError:
            yield failed(
                ACCESS,
                f"{below} may be read, but nothing created or deleted below it; give this client "
                "the permissions create and delete in its access control list",
            )
            return
        first = f"; {missing[0]} is made by the first run" if missing else ""
        yield ok(ACCESS, f"{below} may be read and written{first}")

    @property
    def _paths(self) -> list[str]:
        """From the chroot's first node to the last name of `path`."""
        chroot = (
            "" if embedded_directory(self.address) else ConnectString.parse(self.address).chroot
        )
        names = [*filter(None, chroot.split("/")), *self.path]
        return ["/" + "/".join(names[: length + 1]) for length in range(len(names))]


def session_finding(granted_s: float) -> Finding:
    """`granted_s`: the session timeout that the server grants, in seconds."""
    if granted_s >= SESSION_TIMEOUT_S:
        return ok(SESSION, f"opened; ends {granted_s:g} s after a crash")
    return warning(
        SESSION,
        f"the server grants {granted_s:g} s of the {SESSION_TIMEOUT_S:g} s asked for, so a pause "
        "as long as that costs a job its ownership; raise the server's maxSessionTimeout",
    )


def latency_finding(times_ms: Sequence[float]) -> Finding:
    """`times_ms`: how long each of some reads took."""
    in_order = sorted(times_ms)
    median_ms, slowest_ms = in_order[len(in_order) // 2], in_order[-1]
    said = f"a read takes {median_ms:.1f} ms; the slowest of {len(in_order)}, {slowest_ms:.1f} ms"
    if median_ms <= SLOW_MS:
        return ok(LATENCY, said)
    return warning(
        LATENCY,
        f"{said}; each batch waits for several, so run ZooKeeper nearer, or on faster disks",
    )


def never_ran(address: str) -> bool:
    """Whether this is an embedded server's directory in which none has run."""
    directory = embedded_directory(address)
    return directory is not None and not (directory / LOCK_NAME).is_file()


def _place_of(directory: Path) -> Finding:
    """Connecting would make an embedded server's files, so only its place is looked at."""
    place = next(one for one in (directory, *directory.parents) if one.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        return failed(SERVERS, f"{directory} cannot be made; use another directory")
    return not_tried(SERVERS, f"no server has run in {directory} yet; the first run starts one")


def _shown(words: ServerWords) -> str:
    if words.version is None:
        return (
            "answers, and does not say its version (it does not allow srvr, or not to this client)"
        )
    count = words.connections
    noun = "connection" if count == 1 else "connections"
    clients = "" if count is None else f", {count} {noun}"
    return f"{words.role or 'of an unknown role'}, version {words.version}{clients}"
