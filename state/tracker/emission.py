"""An emission: one hand-over of one record (or of a span of records that are handed
over together).
"""

from __future__ import annotations

import msgspec

from state.sequence_number import SequenceNumber


class Emission(msgspec.Struct, frozen=True):
    """What was handed over, in which attempt (from 1). Only for a span do `last` and `count` say
    more than `sequence`.
    """

    shard_id: str
    sequence: SequenceNumber
    attempt: int
    last: SequenceNumber
    count: int = 1

    @property
    def message_id(self) -> str:
        """`shardId:sequence[.sub]:attempt`, by which the outcome is told."""
        return f"{self.shard_id}:{self.sequence}:{self.attempt}"


def parse_message_id(message_id: str) -> tuple[str, SequenceNumber, int]:
    """Shard, sequence number and attempt of `shardId:sequence[.sub]:attempt`; raises ValueError for
    another text.
    """
    parts = message_id.split(":")
    if len(parts) != 3 or not parts[2].isascii() or not parts[2].isdecimal():
        raise ValueError(f"{message_id!r} is not a message id; give one as it came with a record")
    return parts[0], SequenceNumber.parse(parts[1]), int(parts[2])
