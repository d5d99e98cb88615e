"""The identity and the start of an application as znodes, the end of all of them, a reset, and the
pause, which any operator may create and remove.

Consumers obey the existence of the pause alone. So a node that a person has created by hand pauses,
too, whatever it holds.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from state.codec.values import decode, encode
from state.errors import (
    InvalidPositionError,
    StateError,
    StoredDataError,
    UnfinishedImportError,
)
from state.position import Position
from state.store.identity import (
    IdentityStore,
    Pause,
    PauseStore,
    StartPin,
    StreamIdentity,
    mismatch,
)
from state.store.ownership import OwnerInfo
from state.znodes.fence import Nodes
from state.znodes.paths import is_shard
from state.znodes.tree import Delete, Refusal, TransactionRefusedError, commit_once, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.znodes.fence import Fence
    from state.znodes.ownership import OwnershipZnodes


class IdentityZnodes(Nodes, IdentityStore):
    """An `IdentityStore`. `reset_command`: see `StoreTopics`."""

    def __init__(self, fence: Fence, ownership: OwnershipZnodes, reset_command: str | None) -> None:
        super().__init__(fence)
        self._ownership = ownership
        self._reset_command = reset_command

    def bind(self, identity: StreamIdentity) -> StreamIdentity:
        path = self._paths.identity
        data = encode(identity, path)
        stored = self._create_once(path, data, as_owner=self._fence.ever_held)
        known = decode(stored, StreamIdentity, path)
        if not known.is_same(identity):
            raise mismatch(known, identity, self._paths.application, self._reset_command)
        return known

    def amend(self, identity: StreamIdentity) -> None:
        path = self._paths.identity
        self._fence.write([put(path, encode(identity, path), self._read(path))])

    def read(self) -> StreamIdentity | None:
        return self._decoded(self._paths.identity, StreamIdentity)

    def read_start(self, *, also_unfinished: bool = False) -> StartPin | None:
        pin = self._decoded(self._paths.start, StartPin)
        if pin is not None and pin.importing and not also_unfinished:
            raise UnfinishedImportError(
                f"an import into application {self._paths.application} on stream "
                f"{self._paths.stream} was interrupted, so some of its shards were not imported",
                "repeat the import (`kinesis-spout checkpoint import` or `kinesis-spout "
                f"import`), or remove the state with: {self._reset_command}",
            )
        return pin

    def pin_start(self, pin: StartPin) -> StartPin:
        path = self._paths.start
        stored = self._create_once(path, encode(pin, path))
        self._forget_reset()
        return decode(stored, StartPin, path)

    def replace_start(self, pin: StartPin | None) -> None:
        path = self._paths.start
        node = self._read(path)
        if pin is not None or node is not None:
            self._fence.write([Delete(path) if pin is None else put(path, encode(pin, path), node)])
            self._forget_reset()

    def read_reset(self) -> OwnerInfo | None:
        try:
            return self._decoded(self._paths.reset, OwnerInfo)
        except StoredDataError:
            return None  # a person has written nonsense

    def reset(self, owner: OwnerInfo, *, timeout_s: float) -> int:
        self._ownership.acquire(owner, timeout_s=timeout_s, resets=True)
        paths = self._paths
        try:
            names = self._names(paths.base)
            # Last of all: stopped before, what is left still belongs to its stream, and is found.
            last = [paths.start, paths.identity]
            stay = {paths.epoch, paths.owner, paths.reset}
            # Noted before anything is removed: a reset that is stopped half-way is reported, too.
            note = put(paths.reset, encode(owner, paths.reset), self._read(paths.reset))
            with suppress(TransactionRefusedError):  # another operator was faster
                self._tree.commit([note])
            doomed = {f"{paths.base}/{name}" for name in names} - stay
            for path in [*sorted(doomed.difference(last)), *last]:
                if not self._fence.remove_tree(path):
                    raise StateError(
                        f"another process wrote to {path} while `reset` was removing the znode",
                        "stop the application's job or spout, and run kinesis-spout reset again",
                    )
        finally:
            self._ownership.release()
        return sum(map(is_shard, names))

    def _forget_reset(self) -> None:
        """It has begun again: a state that is missing later was not removed by that reset."""
        with suppress(TransactionRefusedError):
            if self._read(self._paths.reset) is not None:
                self._tree.commit([Delete(self._paths.reset)])


class PauseZnodes(Nodes, PauseStore):
    """A `PauseStore`."""

    def begin(self, pause: Pause) -> Pause:
        path = self._paths.paused
        return _pause(self._create_once(path, encode(pause, path)), path)

    def end(self) -> Pause | None:
        path = self._paths.paused
        stored = self.read()
        if stored is None:
            return None
        try:
            commit_once(self._tree, [Delete(path)])
        except TransactionRefusedError as refused:
            if refused.refusal is Refusal.NO_NODE:
                return None  # another operator was faster
            raise StateError(
                f"the application cannot be resumed, because znode {path} has child znodes",
                "remove the child znodes, and run kinesis-spout resume again",
            ) from refused
        return stored

    def read(self) -> Pause | None:
        return self._value(self._paths.paused, _pause)

    def watch(self, callback: Callable[[], None]) -> None:
        self._tree.watch(self._paths.paused, callback)


def _pause(data: bytes, path: str) -> Pause:
    """What can be read of a node that a person may have written."""
    try:
        pause = decode(data, Pause, path)
        if pause.since_ms is not None:
            Position.at_timestamp(pause.since_ms)  # microseconds are no time that can be shown
    except StoredDataError:
        return Pause()
    except InvalidPositionError:
        return replace(pause, since_ms=None)
    return pause
