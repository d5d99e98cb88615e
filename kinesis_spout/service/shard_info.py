"""A stream and its shards, as the service describes and lists them; its limits of one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.store.identity import StreamIdentity

if TYPE_CHECKING:
    from state.sequence_number import SequenceNumber

# API reference, GetRecords and GetShardIterator.
MAX_RECORDS_PER_CALL = 10_000
MAX_BYTES_PER_CALL = 10 * 1024 * 1024
ITERATOR_LIFE_S = 240.0  # less than the service's 5 minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """The identity, status and retention of a stream.

    - `created_ms` (ms since 1970) and `arn` identify it: a stream that was deleted and created
      again has another creation time.
    - `service_time_ms`: the service's clock when it answered, to the second; None if the answer has
      no date.
    - `max_record_bytes`: the largest record that may be put, with its key; None if the answer does
      not say.
    - `ignores_keys`: its record distribution strategy is AUTO, so a record may have no partition
      key, and one that it has decides nothing.
    - `may_have_ignored_keys`: it has a record distribution strategy, as streams on demand have.
      That may be AUTO today, or may have been when a record was put, so no record is in a shard
      because of its key.
    - `mode`: `PROVISIONED` or `ON_DEMAND`; None if the answer does not say. So are the next two.
    - `open_shards`: how many shards are open.
    - `encryption_key`: the key that its records are encrypted with, None for a stream that is not
      encrypted.
    """

    arn: str
    name: str
    created_ms: int
    status: str
    retention_ms: int
    service_time_ms: int | None
    max_record_bytes: int | None = None
    ignores_keys: bool = False
    may_have_ignored_keys: bool = False
    mode: str | None = None
    open_shards: int | None = None
    encryption_key: str | None = None

    @property
    def identity(self) -> StreamIdentity:
        return StreamIdentity(arn=self.arn, name=self.name, created_ms=self.created_ms)

    def now_ms(self, local_ms: int) -> int:
        """The service's time when it answered; `local_ms`, the caller's, if the answer has no
        date.
        """
        return local_ms if self.service_time_ms is None else self.service_time_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """One shard of a listing.

    - `hash_key_range`: inclusive at both ends.
    - `ending_sequence`: of a closed shard, at or above its last record; None for an open shard.
      Emulators list odd values. `last_sequence` is the one to read up to.
    """

    shard_id: str
    parents: tuple[str, ...]
    hash_key_range: tuple[int, int]
    starting_sequence: SequenceNumber
    ending_sequence: SequenceNumber | None

    @property
    def is_closed(self) -> bool:
        return self.ending_sequence is not None

    @property
    def last_sequence(self) -> SequenceNumber | None:
        """The number at which a closed shard was read to its end; None if there is none. A number
        below the shard's start would take the first page for the last one.
        """
        ending = self.ending_sequence
        return None if ending is None or ending < self.starting_sequence else ending
