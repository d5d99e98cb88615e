"""An emission: one delivery of one record, or of a span of records that are delivered together."""

from __future__ import annotations

import msgspec

from state.sequence_number import SequenceNumber


class Emission(msgspec.Struct, frozen=True):
    """A delivered record or span, and its attempt, counted from 1.

    `sequence` is the number of the record, or the first number of the span. `last` is inclusive; a
    single record has `last == sequence` and a `count` of 1.
    """

    shard_id: str
    sequence: SequenceNumber
    attempt: int
    last: SequenceNumber
    count: int = 1

    @property
    def message_id(self) -> str:
        """`shardId:sequence[.sub]:attempt`: the id that acks and fails name."""
        return f"{self.shard_id}:{self.sequence}:{self.attempt}"


def parse_message_id(message_id: str) -> tuple[str, SequenceNumber, int]:
    """Shard id, sequence number and attempt of `shardId:sequence[.sub]:attempt`. Raises ValueError
    for any other text.

    In a query of several streams the shard id has the stream before it, which may be an ARN:
    `stream/shardId`.
    """
    parts = message_id.rsplit(":", 2)
    if len(parts) != 3 or not parts[2].isascii() or not parts[2].isdecimal():
        raise ValueError(
            f"{message_id!r} is not a message id; pass the message id of a record unchanged"
        )
    return parts[0], SequenceNumber.parse(parts[1]), int(parts[2])
