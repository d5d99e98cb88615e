"""Sequence numbers in the form of the service's: 56 decimal digits, growing within a shard.

The service promises that the numbers of a partition key grow over time, and no more (API reference,
`PutRecord`). The layout is not promised. Authors of emulators (kinesalite, kinesis-mock) derived it
from numbers that they observed. From the highest hexadecimal digit:

    1 digit    version 2
    9 digits   second in which the shard was created
    1 digit    low digit of the shard's index
    16 digits  counter
    2 digits   unknown
    9 digits   second of the put
    8 digits   index of the shard
    1 digit    version 2

Consumers see two consequences. A child's numbers are above all of its parents' numbers, and the
numbers of one shard have gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

# The counter in the EndingSequenceNumber of a closed shard. It is above every record's counter.
COUNTER_END = 0x7FFF_FFFF_FFFF_FFFF
_VERSION = 2


@dataclass(frozen=True, slots=True)
class SequenceParts:
    """The fields of a sequence number. Times in seconds since 1970."""

    shard_created_s: int
    shard_index: int
    counter: int
    put_s: int

    def number(self) -> int:
        return (
            _VERSION << 184
            | self.shard_created_s << 148
            | (self.shard_index & 0xF) << 144
            | self.counter << 80
            | self.put_s << 36
            | self.shard_index << 4
            | _VERSION
        )

    @classmethod
    def of(cls, number: int) -> SequenceParts | None:
        """The fields of a number; None for a number that this layout cannot give."""
        parts = cls(
            shard_created_s=number >> 148 & 0xF_FFFF_FFFF,
            shard_index=number >> 4 & 0xFFFF_FFFF,
            counter=number >> 80 & 0xFFFF_FFFF_FFFF_FFFF,
            put_s=number >> 36 & 0xF_FFFF_FFFF,
        )
        return parts if parts.number() == number else None
