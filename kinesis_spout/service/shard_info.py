"""What the service tells about a stream and its shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber

MAX_RECORDS_PER_CALL = 10_000  # the service's limits of one GetRecords call
ITERATOR_LIFE_S = 240.0  # the service's iterators live 5 minutes
MAX_BYTES_PER_CALL = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """`created_ms` (ms since 1970) and `arn` identify a stream: one that was deleted and made again
    has another time.

    `service_time_ms` is the service's clock when it answered, to the second; None if it did not
    tell.
    """

    arn: str
    name: str
    created_ms: int
    status: str
    retention_ms: int
    service_time_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """One shard as listed. `hash_key_range` is inclusive at both ends.

    `ending_sequence` is where a closed shard ends: at or above its last record. Emulators write odd
    values there.
    """

    shard_id: str
    parents: tuple[str, ...]
    hash_key_range: tuple[int, int]
    starting_sequence: SequenceNumber
    ending_sequence: SequenceNumber | None

    @property
    def is_closed(self) -> bool:
        return self.ending_sequence is not None
