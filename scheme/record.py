"""A Kinesis record as it is delivered, and the test for an aggregate of the Kinesis Producer
Library.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

KPL_MAGIC = b"\xf3\x89\x9a\xc2"
"""The first four bytes of an aggregate (aggregation-format.md of awslabs/amazon-kinesis-producer).
"""

KPL_CHECKSUM_BYTES = 16
"""An aggregate ends with the MD5 of the bytes between the magic number and the checksum."""

SUB_SEQUENCE_NUMBER = "subSequenceNumber"
"""The column of a user record's number in its aggregate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One emission (delivery) of one record.

    - `sequence_number`: Kinesis's decimal text.
    - `sub_sequence_number`: 0 for a record that is not part of an aggregate.
    - `partition_key`: None if the producer gave no key, which a stream with record distribution
      AUTO allows.
    - `approximate_arrival_ms`: milliseconds since 1970 UTC.
    - `attempt`: counted from 1.
    - `id_prefix`: the stream and a slash in a query of several streams; otherwise empty.

    The repr leaves out `data` and `partition_key`, because they may be secret and a repr may end up
    in an error or a log line.
    """

    stream_name: str
    shard_id: str
    sequence_number: str
    partition_key: str | None = field(repr=False)
    data: bytes = field(repr=False)
    approximate_arrival_ms: int
    sub_sequence_number: int = 0
    attempt: int = 1
    id_prefix: str = field(default="", repr=False)

    @property
    def message_id(self) -> str:
        """`shardId:sequence[.sub]:attempt`: the id of this emission in acks, failures and dead
        letters. In a query of several streams, the id starts with the stream and a slash.
        """
        sub = f".{self.sub_sequence_number}" if self.sub_sequence_number else ""
        return f"{self.id_prefix}{self.shard_id}:{self.sequence_number}{sub}:{self.attempt}"


def is_kpl_aggregate(data: bytes) -> bool:
    """Whether the bytes are an aggregate: the magic number, a non-empty message, and the message's
    checksum.

    A payload that only begins with the magic number counts as data, as it does for the KCL.
    """
    if not data.startswith(KPL_MAGIC) or len(data) <= len(KPL_MAGIC) + KPL_CHECKSUM_BYTES:
        return False
    message = memoryview(data)[len(KPL_MAGIC) : -KPL_CHECKSUM_BYTES]
    return hashlib.md5(message, usedforsecurity=False).digest() == data[-KPL_CHECKSUM_BYTES:]
