"""The value that a `dead_letter` callable gets: an exhausted record with its outcomes. Sent by
`kinesis_spout.spout.dead_letter_queue`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kinesis_spout.errors import KinesisError


class LetterRefusedError(KinesisError):
    """`dead_letter` raised, or did not return in time, several times in a row for one record. The
    record stays unresolved, and its letter is tried again.
    """

    retryable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that is not retried any more. At least once: a crash between the call and the next
    commit repeats it.

    - `attempts`: deliveries that had an outcome. `reason`: of the last failure.
    - `first_failure_ms`, `last_failure_ms`, `approximate_arrival_ms`: ms since 1970 UTC.
    - `data`, `partition_key`, `approximate_arrival_ms`: None where the stream does not have the
      record any more. `count` may then be above 1: the letter is for the `count` records from
      `sequence_number` to `last_sequence_number`.

    The repr omits payload and key.
    """

    stream_name: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int = 0
    last_sequence_number: str
    count: int = 1
    attempts: int
    reason: str | None
    first_failure_ms: int | None
    last_failure_ms: int | None
    data: bytes | None = field(repr=False)
    partition_key: str | None = field(repr=False)
    approximate_arrival_ms: int | None

    @property
    def message_id(self) -> str:
        """`shardId:sequence[.sub]:attempt` of the last delivery."""
        sub = f".{self.sub_sequence_number}" if self.sub_sequence_number else ""
        return f"{self.shard_id}:{self.sequence_number}{sub}:{self.attempts}"
