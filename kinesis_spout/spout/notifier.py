"""Telling listeners: an error of one of them is logged, and changes nothing else."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.dead_letter import DeadLetter
    from kinesis_spout.spout.emission import SpoutEmission

log = logging.getLogger("kinesis_spout")


class SpoutHooks:
    """The listeners and the two hooks of a configuration. `any` is False where there is nobody to
    tell of single records.
    """

    def __init__(self, config: SpoutConfig) -> None:
        self._listeners = config.listeners
        self._on_ack = config.on_ack
        self._on_fail = config.on_fail
        self.any = bool(config.listeners or config.on_ack or config.on_fail)

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
