"""What a program can observe of a spout: a listener overrides the events it needs."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission

log = logging.getLogger("kinesis_spout")
MAX_TRACE_CHARS = 20_000


class SpoutListener:
    """A base class whose methods do nothing. The spout calls each method in the thread in which the
    event happens, without holding a lock.

    The spout waits for a listener, so a method should return soon. An exception in a listener is
    logged and has no other effect.
    """

    def emitted(self, emission: SpoutEmission) -> None:
        """A record is delivered, for the first time or again (`emission.attempt` above 1)."""

    def retried(self, emission: SpoutEmission) -> None:
        """A record is redelivered; `emitted` is called too."""

    def acked(self, emission: SpoutEmission) -> None:
        """An ack counted."""

    def failed(self, emission: SpoutEmission, reason: str | None) -> None:
        """A failure counted, or a timeout."""

    def timed_out(self, emission: SpoutEmission) -> None:
        """A delivery had no outcome by its deadline; `failed` is called too."""

    def exhausted(self, letter: Letter) -> None:
        """A record is no longer retried, and was dead-lettered."""

    def checkpointed(self, shard_id: str, checkpoint: str | None) -> None:
        """A shard's state was stored. `checkpoint` is the stored one: a sequence number, SHARD_END,
        or None before the first ack.
        """

    def shard_started(self, shard_id: str) -> None:
        """The shard was assigned to this spout."""

    def shard_finished(self, shard_id: str) -> None:
        """The shard was released: it was read to its end and all its records are acked, or the
        spout gave it up.
        """

    def error(self, error: Exception) -> None:
        """An error that is retried, or that has stopped the spout."""


class SpoutNotifier:
    """Calls the listeners of a configuration, and its two hooks, which make one more. `any`
    is False when nobody listens to single records.
    """

    def __init__(
        self,
        listeners: Sequence[SpoutListener],
        *,
        on_ack: Callable[[SpoutEmission], None] | None = None,
        on_fail: Callable[[SpoutEmission, str | None], None] | None = None,
    ) -> None:
        self._listeners = tuple(listeners)
        if on_ack or on_fail:
            hooks = SpoutListener()
            hooks.acked = on_ack or hooks.acked  # type: ignore[method-assign, assignment]  # of this one
            hooks.failed = on_fail or hooks.failed  # type: ignore[method-assign, assignment]  # of this one
            self._listeners += (hooks,)
        self.any = bool(self._listeners)

    def error(self, error: Exception, *, is_logged: bool = True) -> None:
        """An error that is retried, or that has stopped the spout."""
        if is_logged:
            log.warning("%s: %s", type(error).__name__, error)
        self.notify("error", error)

    def notify(self, event: str, *arguments: Any) -> None:
        """Call the listeners' method of this name."""
        for listener in self._listeners:
            method = getattr(listener, event)
            try:
                method(*arguments)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001  # a listener may raise anything
                # Not `log.exception`: a handler may be unable to write what the error says.
                trace = text_of(traceback.format_exc(), MAX_TRACE_CHARS)
                said = "listener %s raised an error. The spout continues\n%s"
                log.error(said, text_of(method), trace)  # noqa: TRY400
