"""User records packed into aggregates, one open aggregate for each shard. Pure, deterministic.

All user records of an aggregate belong to the shard that it is addressed to: readers leave the
others out. So what is packed is checked against the shard that took it (`PackedRecord.strays`).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.aggregation.message import Aggregate, encoded_record, sealed, varint
from scheme.record import KPL_CHECKSUM_BYTES, KPL_MAGIC, is_kpl_aggregate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.aggregation.hash_range import HashRange, UserRecord

# The default of the KPL, AggregationMaxSize: a shard takes 1 MiB a second.
AGGREGATE_BYTES = 51_200
# As the KPL: the hash key addresses the shard, and the user records have their own keys.
PARTITION_KEY = "a"
_AROUND_BYTES = len(KPL_MAGIC) + KPL_CHECKSUM_BYTES + len(PARTITION_KEY)


@dataclass(frozen=True, slots=True)
class PackedRecord:
    """A Kinesis record to put, made of `users`. Its repr shows neither keys nor data.

    - `shard_id`: the shard that it is addressed to; None for a record that was not packed, because
      no shard is known that has its hash key.
    """

    partition_key: str = field(repr=False)
    data: bytes = field(repr=False)
    explicit_hash_key: str | None = field(repr=False)
    users: tuple[UserRecord, ...] = field(repr=False)
    shard_id: str | None

    @property
    def is_aggregate(self) -> bool:
        """False for a record that is put as the user gave it."""
        return self.data is not self.users[0].data

    def strays(self, taken_by: HashRange | None) -> tuple[UserRecord, ...]:
        """The user records that readers of the shard that took it leave out: to be put again. All
        of them where its range is not known. One alone is addressed by its own hash key, so any
        shard that takes it owns it.
        """
        if len(self.users) == 1:
            return ()
        if taken_by is None:
            return self.users
        return tuple(user for user in self.users if not taken_by.owns(user.hash_key))


class Packer:
    """Packs records for the open shards of a stream. For one thread.

    `shards`: id and hash range of each open shard. `max_bytes`: of an aggregate with its key. A
    user record that does not fit is put alone.
    """

    def __init__(
        self, shards: Iterable[tuple[str, HashRange]], *, max_bytes: int = AGGREGATE_BYTES
    ) -> None:
        self._max_bytes = max_bytes
        self._shards = sorted(shards, key=lambda shard: shard[1].first)
        self._firsts = [hash_range.first for _, hash_range in self._shards]
        self._open: dict[str, _AggregateBuilder] = {}

    def add(self, user: UserRecord) -> list[PackedRecord]:
        """Pack a record, and return what is complete with it. Raises `ValueError` for an explicit
        hash key that is none.
        """
        hash_key = user.hash_key
        at = bisect_right(self._firsts, hash_key) - 1
        if at < 0 or not self._shards[at][1].owns(hash_key):
            return [alone(user, None)]
        shard_id = self._shards[at][0]
        current = self._open.get(shard_id)
        if current is not None and current.add(user, self._max_bytes):
            return []
        # The one before may be empty: its record did not fit into any.
        complete = [current.packed()] if current is not None and current.users else []
        self._open[shard_id] = fresh = _AggregateBuilder(shard_id)
        return complete if fresh.add(user, self._max_bytes) else [*complete, alone(user, shard_id)]

    def flush(self) -> list[PackedRecord]:
        """The aggregates that are not full, in the order in which they were begun last."""
        packed = [current.packed() for current in self._open.values() if current.users]
        self._open.clear()
        return packed


class _AggregateBuilder:
    """An aggregate that more records may be added to."""

    def __init__(self, shard_id: str | None) -> None:
        self.users: list[UserRecord] = []
        self.size_bytes = _AROUND_BYTES
        self._shard_id = shard_id
        self._partition_keys: dict[str, int] = {}
        self._explicit_hash_keys: dict[str, int] = {}
        self._records: list[bytes] = []

    def add(self, user: UserRecord, max_bytes: int) -> bool:
        """Add a record; False if it does not fit."""
        partition_key, data, hash_key = user
        keys, explicit = self._partition_keys, self._explicit_hash_keys
        index = keys.get(partition_key)
        added_bytes = 0
        if index is None:
            index = len(keys)
            added_bytes = _field_bytes(len(partition_key.encode()))
        explicit_index = None
        if hash_key is not None:
            explicit_index = explicit.get(hash_key, len(explicit))
            if explicit_index == len(explicit):
                added_bytes += _field_bytes(len(hash_key))
        encoded = encoded_record(index, explicit_index, data)
        added_bytes += _field_bytes(len(encoded))
        if self.size_bytes + added_bytes > max_bytes:
            return False
        self.size_bytes += added_bytes
        keys[partition_key] = index
        if hash_key is not None and explicit_index is not None:
            explicit[hash_key] = explicit_index
        self.users.append(user)
        self._records.append(encoded)
        return True

    def packed(self) -> PackedRecord:
        """The record to put."""
        if len(self.users) == 1:
            return alone(self.users[0], self._shard_id)
        return self.aggregate()

    def aggregate(self) -> PackedRecord:
        """All that was added, as an aggregate."""
        message = Aggregate(
            partition_key_table=[key.encode() for key in self._partition_keys],
            explicit_hash_key_table=[key.encode() for key in self._explicit_hash_keys],
            records=self._records,
        )
        data = sealed(message.SerializeToString(deterministic=True))
        hash_key = str(self.users[0].hash_key)
        return PackedRecord(PARTITION_KEY, data, hash_key, tuple(self.users), self._shard_id)


def alone(user: UserRecord, shard_id: str | None = None) -> PackedRecord:
    """The record to put of one user record, which no reshard can misplace. It is put as it is,
    unless it is an aggregate itself: readers would unpack it, and leave out what their shard does
    not own. So it is put as the only user record of another aggregate, and stays the bytes that it
    is. Raises `ValueError` for an explicit hash key that is none.
    """
    if not is_kpl_aggregate(user.data):
        return PackedRecord(
            user.partition_key, user.data, user.explicit_hash_key, (user,), shard_id
        )
    around = _AggregateBuilder(shard_id)
    around.add(user, sys.maxsize)
    return around.aggregate()


def _field_bytes(size: int) -> int:
    """What a string of so many bytes takes as a field: a tag, its length, and itself."""
    return 1 + len(varint(size)) + size
