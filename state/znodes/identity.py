"""The identity and the start of an application as znodes, and the end of all of them: a reset."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from state.codec.values import decode, encode
from state.errors import StateError, StoredDataError, StreamMismatchError, UnfinishedImportError
from state.store.identity import StartPin, StreamIdentity
from state.store.ownership import OwnerInfo
from state.znodes.paths import is_shard
from state.znodes.tree import (
    Create,
    Delete,
    Operation,
    Set,
    TransactionRefusedError,
    ZnodeTree,
)

if TYPE_CHECKING:
    from state.store.ownership import OwnershipStore
    from state.znodes.fence import Fence
    from state.znodes.paths import ZookeeperPaths


class IdentityZnodes:
    """An `IdentityStore`. `reset_command`: the command, named in errors, that drops the
    application's state.
    """

    def __init__(
        self,
        tree: ZnodeTree,
        paths: ZookeeperPaths,
        fence: Fence,
        ownership: OwnershipStore,
        reset_command: str,
    ) -> None:
        self._tree = tree
        self._paths = paths
        self._fence = fence
        self._ownership = ownership
        self._reset_command = reset_command

    def bind(self, identity: StreamIdentity) -> None:
        stored = self._create_once(
            self._paths.identity,
            encode(identity, self._paths.identity),
            fenced=self._fence.ever_held,
        )
        known = decode(stored, StreamIdentity, self._paths.identity)
        if known.is_same(identity):
            return
        if known.arn == identity.arn:
            what = (
                f"stream {identity.arn} was deleted and created again: the state belongs to the "
                f"stream created at {_time(known.created_ms)}, but the stream of today was created "
                f"at {_time(identity.created_ms)}"
            )
        else:
            what = (
                f"the state of application {self._paths.application!r} belongs to stream "
                f"{known.arn}, not to {identity.arn}"
            )
        raise StreamMismatchError(
            f"{what}; use another application name, or drop the old state with: "
            f"{self._reset_command}"
        )

    def read(self) -> StreamIdentity | None:
        node = self._tree.read([self._paths.identity])[0]
        return None if node is None else decode(node.data, StreamIdentity, self._paths.identity)

    def read_start(self, *, also_unfinished: bool = False) -> StartPin | None:
        node = self._tree.read([self._paths.start])[0]
        pin = None if node is None else decode(node.data, StartPin, self._paths.start)
        if pin is not None and pin.importing and not also_unfinished:
            raise UnfinishedImportError(
                f"an import into application {self._paths.application} on stream "
                f"{self._paths.stream} was stopped before its end, so its shards are not all where "
                "they belong; give the command again, `kinesis-spout checkpoint import` or "
                f"`kinesis-spout import`, or drop the state with: {self._reset_command}"
            )
        return pin

    def pin_start(self, pin: StartPin) -> StartPin:
        stored = self._create_once(self._paths.start, encode(pin, self._paths.start), fenced=False)
        self._forget_reset()
        return decode(stored, StartPin, self._paths.start)

    def replace_start(self, pin: StartPin | None) -> None:
        path = self._paths.start
        node = self._tree.read([path])[0]
        write: Operation
        if pin is not None:
            data = encode(pin, path)
            write = Create(path, data) if node is None else Set(path, data, node.version)
        elif node is not None:
            write = Delete(path)
        else:
            return
        self._fence.write([write])
        self._forget_reset()

    def read_reset(self) -> OwnerInfo | None:
        node = self._tree.read([self._paths.reset])[0]
        try:
            return None if node is None else decode(node.data, OwnerInfo, self._paths.reset)
        except StoredDataError:
            return None  # a person has written nonsense

    def reset(self, owner: OwnerInfo, *, timeout_s: float) -> int:
        self._ownership.acquire(owner, timeout_s=timeout_s)
        try:
            names = self._tree.children([self._paths.base])[0] or ()
            shards = sum(map(is_shard, names))
            # Last of all: stopped before, what is left still belongs to its stream, and is found.
            last = [self._paths.start, self._paths.identity]
            stay = {self._paths.epoch, self._paths.owner, self._paths.reset}
            self._note_reset(owner)
            paths = {f"{self._paths.base}/{name}" for name in names} - stay
            for path in [*sorted(paths.difference(last)), *(one for one in last if one in paths)]:
                if not self._fence.remove_tree(path):
                    raise StateError(
                        f"{path} was written to while it was being removed; stop the process that "
                        "writes there and reset again"
                    )
        finally:
            self._ownership.release()
        return shards

    def _note_reset(self, owner: OwnerInfo) -> None:
        """Comes before anything is removed: a reset that was stopped half-way is reported, too."""
        path = self._paths.reset
        data, there = encode(owner, path), self._tree.read([path])[0]
        write = Create(path, data) if there is None else Set(path, data, there.version)
        with suppress(TransactionRefusedError):  # another operator was faster
            self._tree.commit([write])

    def _forget_reset(self) -> None:
        """It has begun again: a state that is missing later was not removed by that reset."""
        with suppress(TransactionRefusedError):
            if self._tree.read([self._paths.reset])[0] is not None:
                self._tree.commit([Delete(self._paths.reset)])

    def _create_once(self, path: str, data: bytes, *, fenced: bool) -> bytes:
        """Create the node with `data` if it does not exist, and return the content of the node.

        `fenced`: the creation is a write of the owner, so that a stale owner creates nothing.
        """
        while True:
            node = self._tree.read([path])[0]
            if node is not None:
                return node.data
            self._tree.ensure(self._paths.base)
            try:
                (self._fence if fenced else self._tree).commit([Create(path, data)])
            except TransactionRefusedError:
                continue  # another process has just created it
            return data


def _time(moment_ms: int) -> str:
    return (
        datetime.fromtimestamp(moment_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
