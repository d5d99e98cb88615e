"""What one can be told of a spout's life: a listener overrides what it is interested in."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_spout.spout.dead_letter import DeadLetter
    from kinesis_spout.spout.emission import SpoutEmission

log = logging.getLogger("kinesis_spout")


class SpoutListener:
    """Every method does nothing here. They are called from whichever thread does the thing, without
    a lock held.

    They should return soon: what they take, the spout waits. An error that one raises is logged and
    changes nothing else.
    """

    def emitted(self, emission: SpoutEmission) -> None:
        """A record is being handed over, for the first time or again
        (`emission.attempt` above 1).
        """

    def retried(self, emission: SpoutEmission) -> None:
        """A record is being handed over again; `emitted` is called as well."""

    def acked(self, emission: SpoutEmission) -> None:
        """An ack counted."""

    def failed(self, emission: SpoutEmission, reason: str | None) -> None:
        """A fail counted, or a time-out did."""

    def timed_out(self, emission: SpoutEmission) -> None:
        """No outcome came in time; `failed` is called as well."""

    def exhausted(self, letter: DeadLetter) -> None:
        """A record is not tried again, and was dead-lettered."""

    def checkpointed(self, shard_id: str, checkpoint: str | None) -> None:
        """A shard's state was stored. `checkpoint`: as stored, a sequence number or SHARD_END; None
        before the first ack.
        """

    def shard_started(self, shard_id: str) -> None:
        """The spout has taken a shard up."""

    def shard_finished(self, shard_id: str) -> None:
        """A shard's end was read and all of it is acked, or it was laid down."""

    def error(self, error: Exception) -> None:
        """Something went wrong that is tried again, or that has stopped the spout."""


class SpoutHooks:
    """The listeners and the two hooks of a configuration. `any` is False where there is nobody to
    tell of single records.
    """

    def __init__(
        self,
        listeners: Sequence[SpoutListener],
        *,
        on_ack: Callable[[SpoutEmission], None] | None = None,
        on_fail: Callable[[SpoutEmission, str | None], None] | None = None,
    ) -> None:
        self._listeners = listeners
        self._on_ack = on_ack
        self._on_fail = on_fail
        self.any = bool(listeners or on_ack or on_fail)

    def emitted(self, emission: SpoutEmission) -> None:
        self._tell("emitted", emission)
        if emission.attempt > 1:
            self._tell("retried", emission)

    def acked(self, emission: SpoutEmission) -> None:
        self._tell("acked", emission)
        if self._on_ack is not None:
            self._call(self._on_ack, emission)

    def failed(self, emission: SpoutEmission, reason: str | None) -> None:
        self._tell("failed", emission, reason)
        if self._on_fail is not None:
            self._call(self._on_fail, emission, reason)

    def timed_out(self, emission: SpoutEmission) -> None:
        self._tell("timed_out", emission)

    def exhausted(self, letter: DeadLetter) -> None:
        self._tell("exhausted", letter)

    def checkpointed(self, shard_id: str, checkpoint: str | None) -> None:
        self._tell("checkpointed", shard_id, checkpoint)

    def shard_started(self, shard_id: str) -> None:
        self._tell("shard_started", shard_id)

    def shard_finished(self, shard_id: str) -> None:
        self._tell("shard_finished", shard_id)

    def error(self, error: Exception) -> None:
        """Something that is tried again, or comes after what has stopped the spout. It is logged,
        too.
        """
        log.warning("%s: %s", type(error).__name__, error)
        self._tell("error", error)

    def stopped(self, error: Exception) -> None:
        """The spout has stopped: who asks for the next record gets the error, so it is not logged
        as well.
        """
        self._tell("error", error)

    def _tell(self, what: str, *arguments: Any) -> None:
        for listener in self._listeners:
            self._call(getattr(listener, what), *arguments)

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:
            log.exception("the spout goes on, though %r raised", function)
