"""What is checked in ZooKeeper: servers, session, access, state. Nothing stays behind in it."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING

from kinesis_spout.doctor.findings import Finding, failed, not_tried, ok, warning
from kinesis_spout.inspection.wording import counted
from state.errors import StateError, StoreUnavailableError
from state.store.identity import mismatch
from state.znodes.paths import ZookeeperPaths
from state.znodes.topics import StoreTopics
from state.znodes.tree import Create, Delete, Operation, TransactionRefusedError
from state.zookeeper.embedded import embedded_directory, resolve_connect_string
from state.zookeeper.servers import ConnectString, ServerWords, ask_server
from state.zookeeper.tree import ZookeeperTree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kinesis_spout.doctor.findings import Target
    from kinesis_spout.service.shard_info import StreamSummary

SESSION_TIMEOUT_S = 10.0  # what a job requests
READS = 25
SLOW_MS = 100.0  # a batch makes a handful of these reads, one after the other
_CALL_LIMIT_S = 6.0


class Ensemble:
    """The checks of the servers at a connect string. `described`: the target's stream as it is
    today; None if it could not be described.
    """

    def __init__(
        self, address: str, target: Target, described: StreamSummary | None = None
    ) -> None:
        self._address, self._target, self._described = address, target, described
        self._tree = ZookeeperTree(
            address,
            session_timeout_s=SESSION_TIMEOUT_S,
            operation_timeout_s=_CALL_LIMIT_S,
            connect_timeout_s=_CALL_LIMIT_S,
            security=target.security,
        )
        is_embedded = embedded_directory(address) is not None
        self._chroot = "" if is_embedded else ConnectString.parse(address).chroot
        stream = target.stream.name if target.stream and target.application else None
        all_names = (*self._chroot.split("/"), target.zookeeper_root, target.application, stream)
        names = [name for name in all_names if name]
        # From the chroot's first node to the last one that the target names.
        self._paths = ["/" + "/".join(names[: length + 1]) for length in range(len(names))]

    def close(self) -> None:
        self._tree.close()

    def check_servers(self) -> Iterator[Finding]:
        """Each server by itself: a client hides that one is missing."""
        security = self._target.security
        security.check_usable(self._address)
        context = security.tls_context() if security.tls else None
        answers, errors = [], []
        for host, port in ConnectString.parse(resolve_connect_string(self._address)).servers:
            try:
                words = ask_server(host, port, timeout_s=2.0, context=context)
                answers.append(f"{host}:{port} {_shown(words)}")
            except StoreUnavailableError as exc:
                errors.append(str(exc))
        for error in errors:
            others = f"{error}; the other ZooKeeper servers answer"
            yield warning(others) if answers else failed(error, unreachable=True)
        if answers:
            yield ok("; ".join(answers))

    def check_session(self) -> Finding:
        granted_s = self._tree.session_timeout_s() or SESSION_TIMEOUT_S
        if granted_s >= SESSION_TIMEOUT_S:
            return ok(
                "ZooKeeper opened a session, and ends the session of a crashed process after "
                f"{granted_s:g} s"
            )
        wanted = f"{SESSION_TIMEOUT_S:g} s were requested"
        granted = f"the server grants a session timeout of {granted_s:g} s; {wanted}"
        effect = "a job that pauses for longer loses its ownership"
        return warning(f"{granted}; {effect}; raise the server's maxSessionTimeout")

    def check_latency(self) -> Finding:
        """Of a read as a job makes it: a sync, and the node."""
        times_ms = list[float]()
        for _ in range(READS):
            began_s = time.monotonic()
            self._tree.read(self._paths[:1])
            times_ms.append((time.monotonic() - began_s) * 1_000)
        median_ms, slowest_ms = sorted(times_ms)[READS // 2], max(times_ms)
        shown = f"a read takes {median_ms:.1f} ms; the slowest of {READS} took {slowest_ms:.1f} ms"
        if median_ms <= SLOW_MS:
            return ok(shown)
        advice = "run ZooKeeper closer to the job, or on faster disks"
        return warning(f"{shown}; each batch waits for several such reads; {advice}")

    def check_access(self) -> Finding:
        """Reads, creates and deletes below the deepest node that exists.

        The scratch node is created and deleted in one transaction, with the nodes above it that
        are missing. So nothing of it is ever seen, whatever ends this process.
        """
        above = list(self._paths)
        made = [f"{above[-1]}/doctor-{secrets.token_hex(8)}"]
        # From below: this client may have no access to the nodes above its own.
        while above and self._tree.read([above[-1]])[0] is None:
            made.insert(0, above.pop())
        below = above[-1] if above else "/"
        operations: list[Operation] = [Create(path, b"") for path in made]
        operations += [Delete(path) for path in reversed(made)]
        try:
            self._tree.commit(operations)
        except TransactionRefusedError:
            return warning(f"another process has just changed {below}; try again")
        except StoreUnavailableError:
            raise
        except StateError:
            shown = (
                f"this client can read {below}, but has no permission to create or delete znodes "
                "below it"
            )
            give = "give this client the permissions create and delete in the ACL"
            return failed(f"{shown}; {give} of {below}")
        first = f"; the first run creates {made[0]}" if len(made) > 1 else ""
        return ok(f"this client can read and write {below}{first}")

    def check_state(self) -> Iterator[Finding]:
        """Whether the application's state belongs to the stream of today, and a job can read it."""
        application, stream = self._target.application, self._target.stream
        if application is None or stream is None:
            return
        if self._described is None:
            yield not_tried("the stream check did not pass")
            return
        place = {"chroot": self._chroot, "root": self._target.zookeeper_root}
        paths = ZookeeperPaths(**place, application=application, stream=stream.name)
        topics = StoreTopics(self._tree, paths, reset_command="kinesis-spout reset")
        known = topics.identity.read()
        if known is None:
            yield ok(f"application {application} has no stored state yet")
        elif known.is_same(self._described.identity):
            topics.identity.read_start()
            topics.shard_states.load()
            yield ok(f"the state of application {application} belongs to this stream")
        else:
            described = self._described.identity
            yield failed(str(mismatch(known, described, application, "kinesis-spout reset")))


def check_directory(directory: Path) -> Finding:
    nearest = next(one for one in (directory, *directory.parents) if one.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        return failed(f"this user cannot create {directory}; use another directory")
    return not_tried(
        f"no ZooKeeper server has run in {directory} yet; the application's first run starts one"
    )


def _shown(words: ServerWords) -> str:
    if words.version is None:
        return "answers, but refuses the command srvr, which shows the server's version"
    count = words.connections
    clients = "" if count is None else f", {counted(count, 'connection')}"
    return f"{words.role or 'of an unknown role'}, version {words.version}{clients}"
