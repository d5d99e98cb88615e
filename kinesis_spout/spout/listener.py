"""What one can be told of a spout's life: a listener overrides what it is interested in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.spout.dead_letter import DeadLetter
    from kinesis_spout.spout.emission import SpoutEmission


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
