"""Sequence numbers of the form that the service's have: 56 decimal digits, growing within a shard.

What is promised (API reference, `PutRecord`): numbers grow over time for a partition key; nothing
else is. The layout is no promise; it was found out by people who wrote emulators (kinesalite,
kinesis-mock) from numbers they had seen. From the top, in hexadecimal digits: version 2 (1), second
in which the shard was created (9), low digit of the shard's index (1), counter (16), unknown (2),
second of the put (9), index of the shard (8), version again (1). Two things follow that consumers
see: a child's numbers lie above all of its parents', and numbers of one shard do not follow each
other without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

COUNTER_END = 0x7FFF_FFFF_FFFF_FFFF  # the counter in the EndingSequenceNumber of a closed shard: above every record's
_VERSION = 2


@dataclass(frozen=True, slots=True)
class SequenceParts:
    """What a sequence number is made of; times in seconds since 1970."""

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
        """The parts of a number, or None of one that this layout cannot have made."""
        parts = cls(
            shard_created_s=number >> 148 & 0xF_FFFF_FFFF,
            shard_index=number >> 4 & 0xFFFF_FFFF,
            counter=number >> 80 & 0xFFFF_FFFF_FFFF_FFFF,
            put_s=number >> 36 & 0xF_FFFF_FFFF,
        )
        return parts if parts.number() == number else None
