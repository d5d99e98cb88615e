"""Records packed into aggregates, one open aggregate for each open shard of a stream, which may be
resharded meanwhile. Deterministic; does no I/O.

All user records of an aggregate belong to the shard that it is addressed to: readers leave the
others out. One that was packed before a reshard may come to a shard that does not have the hash
keys of all of them. So these are put again, as does the KPL (`Retrier::succeed_if_correct_shard`):
each alone, which no reshard can misplace.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.aggregation.message import Aggregate, encoded_record, sealed, varint
from kinesis_spout.aggregation.unpacking import checked_records, open_aggregate
from kinesis_spout.service.record_putter import OutgoingRecord
from kinesis_spout.service.shard_info import hash_key_of
from scheme.record import KPL_CHECKSUM_BYTES, KPL_MAGIC, is_kpl_aggregate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.service.shard_info import ShardInfo

# The default of the KPL, AggregationMaxSize: a shard takes 1 MiB a second.
AGGREGATE_BYTES = 51_200
# As the KPL: the hash key addresses the shard, and the user records have their own keys.
PARTITION_KEY = "a"
_AROUND_BYTES = len(KPL_MAGIC) + KPL_CHECKSUM_BYTES + len(PARTITION_KEY)


@dataclass(frozen=True, slots=True)
class PackedRecord(OutgoingRecord):
    """A record to put that is an aggregate of `users`. Its repr shows neither keys nor data.

    `shard_id`: the shard that it is addressed to; None where no shard is known that has its hash
    key.
    """

    users: tuple[OutgoingRecord, ...] = field(kw_only=True, repr=False)
    shard_id: str | None = field(kw_only=True)


def unpacked(payload: bytes) -> list[OutgoingRecord] | None:
    """The user records of an aggregate, to be put again one by one; None for any other payload."""
    opened = open_aggregate(memoryview(payload)) if payload.startswith(KPL_MAGIC) else None
    records = None if opened is None else checked_records(opened)
    if opened is None or records is None:
        return None
    users = []
    for record in records:
        explicit = None
        if record.HasField("explicit_hash_key_index"):
            explicit = opened.explicit_hash_keys[record.explicit_hash_key_index].decode()
        key = opened.partition_keys[record.partition_key_index].decode()
        users.append(OutgoingRecord(key, record.data, explicit))
    return users


def users_of(record: OutgoingRecord) -> tuple[OutgoingRecord, ...]:
    """The records of the user that are in it."""
    return record.users if isinstance(record, PackedRecord) else (record,)


class Packer:
    """Packs records. For one thread. `shards`: a listing of the stream. `max_bytes`: of an
    aggregate with its key. A record that does not fit is put alone, and so is one for which no
    shard is listed.
    """

    def __init__(self, shards: Iterable[ShardInfo], *, max_bytes: int = AGGREGATE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._open: dict[str, _AggregateBuilder] = {}
        self._list(shards)

    def add(self, user: OutgoingRecord) -> list[OutgoingRecord]:
        """Pack a record, and return what is complete with it. Raises `ValueError` for an explicit
        hash key that is none.
        """
        hash_key = hash_key_of(user.partition_key, user.explicit_hash_key)
        at = bisect_right(self._firsts, hash_key) - 1
        if at < 0 or not self._ranges[self._shard_ids[at]].owns(hash_key):
            return [alone(user)]
        shard_id = self._shard_ids[at]
        current = self._open.get(shard_id)
        if current is not None and current.add(user, self._max_bytes):
            return []
        # The one before may be empty: its record did not fit into any.
        complete = [current.packed()] if current is not None and current.users else []
        self._open[shard_id] = fresh = _AggregateBuilder(shard_id)
        return complete if fresh.add(user, self._max_bytes) else [*complete, alone(user, shard_id)]

    def flush(self) -> list[OutgoingRecord]:
        """The aggregates that are not full, in the order in which they were begun last."""
        packed = [current.packed() for current in self._open.values() if current.users]
        self._open.clear()
        return packed

    def on_shards(self, shards: Iterable[ShardInfo]) -> list[OutgoingRecord]:
        """Pack for these shards from now on, also what was not returned yet. Returns what is
        complete.
        """
        users = [user for current in self._open.values() for user in current.users]
        self._open.clear()
        self._list(shards)
        return [packed for user in users for packed in self.add(user)]

    def strays(self, record: OutgoingRecord, shard_id: str | None) -> list[OutgoingRecord]:
        """The records to put again, since `record` was put in this shard: those that its readers
        leave out, or all where the shard is not listed.
        """
        if not isinstance(record, PackedRecord) or shard_id == record.shard_id:
            return []
        # One alone is addressed by its own hash key, so any shard that takes it owns it.
        if len(record.users) == 1:
            return []
        taken_by = None if shard_id is None else self._ranges.get(shard_id)
        return [
            alone(user)
            for user in record.users
            if taken_by is None
            or not taken_by.owns(hash_key_of(user.partition_key, user.explicit_hash_key))
        ]

    def _list(self, shards: Iterable[ShardInfo]) -> None:
        listed = sorted(shards, key=lambda shard: shard.hash_key_range[0])
        self._ranges = {shard.shard_id: shard.hash_key_range for shard in listed}
        self._shard_ids = [shard.shard_id for shard in listed if not shard.is_closed]
        self._firsts = [self._ranges[shard_id].first for shard_id in self._shard_ids]


class _AggregateBuilder:
    """An aggregate that more records may be added to."""

    def __init__(self, shard_id: str | None) -> None:
        self.users: list[OutgoingRecord] = []
        self._size_bytes = _AROUND_BYTES
        self._shard_id = shard_id
        self._partition_keys: dict[str, int] = {}
        self._explicit_hash_keys: dict[str, int] = {}
        self._records: list[bytes] = []

    def add(self, user: OutgoingRecord, max_bytes: int) -> bool:
        """Add a record; False if it does not fit."""
        partition_key, hash_key = user.partition_key, user.explicit_hash_key
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
        encoded = encoded_record(index, explicit_index, user.data)
        added_bytes += _field_bytes(len(encoded))
        if self._size_bytes + added_bytes > max_bytes:
            return False
        self._size_bytes += added_bytes
        keys[partition_key] = index
        if hash_key is not None and explicit_index is not None:
            explicit[hash_key] = explicit_index
        self.users.append(user)
        self._records.append(encoded)
        return True

    def packed(self) -> OutgoingRecord:
        """The record to put."""
        return alone(self.users[0], self._shard_id) if len(self.users) == 1 else self.aggregate()

    def aggregate(self) -> PackedRecord:
        """All that was added, as an aggregate."""
        message = Aggregate(
            partition_key_table=[key.encode() for key in self._partition_keys],
            explicit_hash_key_table=[key.encode() for key in self._explicit_hash_keys],
            records=self._records,
        )
        first = self.users[0]
        return PackedRecord(
            PARTITION_KEY,
            sealed(message.SerializeToString(deterministic=True)),
            str(hash_key_of(first.partition_key, first.explicit_hash_key)),
            users=tuple(self.users),
            shard_id=self._shard_id,
        )


def alone(user: OutgoingRecord, shard_id: str | None = None) -> OutgoingRecord:
    """The record to put of one user record, which no reshard can misplace. It is put as it is,
    unless it is an aggregate itself: readers would unpack it, and leave out what their shard does
    not own. So it is put as the only user record of another aggregate, and stays the bytes that it
    is. Raises `ValueError` for an explicit hash key that is none.
    """
    if not is_kpl_aggregate(user.data):
        return user
    around = _AggregateBuilder(shard_id)
    around.add(user, sys.maxsize)
    return around.aggregate()


def _field_bytes(size: int) -> int:
    """What a string of so many bytes takes as a field: a tag, its length, and itself."""
    return 1 + len(varint(size)) + size
