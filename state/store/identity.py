"""The stream that the state belongs to, where the application started, that it was reset, and that
an operator has paused it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from state.errors import StreamMismatchError
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from state.store.ownership import OwnerInfo


class StreamIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The stream that the state belongs to. One that was created again under its name differs in
    `created_ms` (milliseconds since 1970).

    - `retention_ms`: as the application has seen it last; None in a state of an earlier version.
    - `expired_ms`: the retention was shorter before, and what arrived before this time may have
      expired then. A longer retention brings nothing back.
    """

    arn: str
    name: str
    created_ms: int
    retention_ms: int | None = None
    expired_ms: int = 0
    format: int = 1

    def horizon_ms(self, retention_ms: int, now_ms: int) -> int:
        """What arrived before this time may have expired: the retention is this at `now_ms`, and
        may have been as before until then.
        """
        least_ms = min(retention_ms, self.retention_ms or retention_ms)
        return max(now_ms - least_ms, self.expired_ms)

    def is_same(self, other: StreamIdentity) -> bool:
        """Whether it is the same stream, and not one that was created again under its name."""
        return (self.arn, self.created_ms) == (other.arn, other.created_ms)


def mismatch(
    known: StreamIdentity, present: StreamIdentity, application: str, reset_command: str | None
) -> StreamMismatchError:
    """The error of an application whose state belongs to `known`, which is not the stream
    `present`. `reset_command` drops the state; None for a state that ends with its process.
    """
    state = "the state of this process"
    remedy = "start the program again; it reads the current stream from its starting position"
    if reset_command is not None:
        state = f"the state of application {application!r}"
        remedy = (
            f"use another application name, or remove the old state with `{reset_command}` and "
            "start the job at TRIM_HORIZON; a job that starts at LATEST skips the records that the "
            "current stream already contains"
        )
    if known.arn == present.arn:
        then, now = map(Position.at_timestamp, (known.created_ms, present.created_ms))
        what = (
            f"stream {present.arn} was deleted and created again: {state} belongs to the stream "
            f"that was created at {then}, but the current stream was created at {now}"
        )
    else:
        what = f"{state} belongs to stream {known.arn}, not to stream {present.arn}"
    return StreamMismatchError(what, remedy)


class StartPin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the application started. It is pinned once and never changed.

    - `time_ms`: the service's time then. `requested`: the position as the user typed it.
    - `shards`: the shards that were listed then. Each starts at its position in `shard_positions`,
      or else at `position`. Shards that are listed later start at TRIM_HORIZON.
    - `importing`: an import is under way, or was stopped: not all shards are where it puts them.
    """

    time_ms: int
    requested: str = msgspec.field(name="wish")  # the name in ZooKeeper stays
    position: Position
    shards: tuple[str, ...]
    shard_positions: dict[str, Position] = {}
    importing: bool = False
    format: int = 1


class IdentityStore(Protocol):
    """The identity and the start of an application.

    Needs: creation only where there is none; a transaction with the owner's fence for
    `replace_start` and `reset`.
    """

    def bind(self, identity: StreamIdentity) -> StreamIdentity:
        """Record the stream that this state belongs to, or compare it with the recorded one.
        Returns the recorded one. Raises `StreamMismatchError`, which names both, if ARN or creation
        time differ.
        """

    def amend(self, identity: StreamIdentity) -> None:
        """Record another retention of the bound stream. A write of the owner; raises
        `ConflictError`.
        """

    def read(self) -> StreamIdentity | None:
        """The stream that the state is bound to, or None before `bind`."""

    def read_start(self, *, also_unfinished: bool = False) -> StartPin | None:
        """The start pin, or None before `pin_start`. Raises `UnfinishedImportError` for that of an
        import that is not finished, unless `also_unfinished`.
        """

    def pin_start(self, pin: StartPin) -> StartPin:
        """Create the start pin if there is none. Returns the stored one. Needs no ownership."""

    def replace_start(self, pin: StartPin | None) -> None:
        """Put another start pin, or none, in the place of the stored one. Only for an operator who
        restores an exported application. A write of the owner; raises `ConflictError`.
        """

    def read_reset(self) -> OwnerInfo | None:
        """The process that removed the application's state, and when; None where it has begun again
        since.
        """

    def reset(self, owner: OwnerInfo, *, timeout_s: float) -> int:
        """Remove all state of the application and stream. Returns how many shards had state.

        Acquires the ownership for it (`OwnershipStore.acquire`) and releases it afterwards. The
        epoch stays, counted up, so that no process from before the reset can write later; and
        `read_reset` tells that `owner` has removed the state.
        """


class Pause(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pause of the application: it keeps its ownership and reads nothing. The node's existence is
    the pause. What it holds is for people, and may be missing.

    - `by`: who paused it. `since_ms`: when, by that machine's clock. `reason`: as it was given.
    """

    by: str | None = None
    since_ms: int | None = None
    reason: str | None = None
    format: int = 1


class PauseStore(Protocol):
    """The pause. Nothing is fenced.

    Needs: creation only where there is none; a watch.
    """

    def begin(self, pause: Pause) -> Pause:
        """Pause the application, unless it is paused. Returns the stored pause: `pause`, or an
        earlier one. Idempotent. Needs no ownership.
        """

    def end(self) -> Pause | None:
        """End the pause. Returns the one that this call has ended, or None. Needs no ownership."""

    def read(self) -> Pause | None:
        """The pause, or None while the application is not paused. Its content may be anything: what
        cannot be read of it is left out. Needs no ownership.
        """

    def watch(self, callback: Callable[[], None]) -> None:
        """Watch the pause until `close`, as `ShardListStore.watch` does the shard list."""
