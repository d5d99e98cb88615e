"""A Kinesis record as it is handed over, and how an aggregate of the Kinesis Producer Library is
told from data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

KPL_MAGIC = b"\xf3\x89\x9a\xc2"
"""The first four bytes of an aggregate (aggregation-format.md of awslabs/amazon-kinesis-producer).
"""

KPL_CHECKSUM_BYTES = 16
"""An aggregate ends with the MD5 of what stands between the magic number and the checksum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One emission of one record.

    `sequence_number` is the service's decimal text, `sub_sequence_number` is 0 for a record that is
    no part of an aggregate, `approximate_arrival_ms` counts milliseconds since 1970 UTC, `attempt`
    starts at 1. The repr leaves `data` out: a payload may be secret, and an error or a log line may
    hold a repr.
    """

    stream_name: str
    shard_id: str
    sequence_number: str
    partition_key: str = field(repr=False)
    data: bytes = field(repr=False)
    approximate_arrival_ms: int
    sub_sequence_number: int = 0
    attempt: int = 1

    @property
    def message_id(self) -> str:
        """`shardId:sequence[.sub]:attempt`, which names this emission in acks, fails and dead
        letters.
        """
        sub = f".{self.sub_sequence_number}" if self.sub_sequence_number else ""
        return f"{self.shard_id}:{self.sequence_number}{sub}:{self.attempt}"


def is_kpl_aggregate(data: bytes) -> bool:
    """Whether the bytes are an aggregate: magic number in front, right checksum at the end, a
    message between them.

    A payload of one's own that merely begins with the magic number is data, as it is for the KCL.
    """
    if not data.startswith(KPL_MAGIC) or len(data) <= len(KPL_MAGIC) + KPL_CHECKSUM_BYTES:
        return False
    message = memoryview(data)[len(KPL_MAGIC) : -KPL_CHECKSUM_BYTES]
    return hashlib.md5(message, usedforsecurity=False).digest() == data[-KPL_CHECKSUM_BYTES:]
