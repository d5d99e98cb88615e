"""Records packed into aggregates for the open shards of a stream, which may be resharded meanwhile.

An aggregate that was packed before a reshard may come to a shard that does not have the hash keys
of all its user records. Readers leave these out, so they are put again, as does the KPL
(`Retrier::succeed_if_correct_shard`): each alone, which no reshard can misplace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.aggregation.hash_range import HashRange, UserRecord
from kinesis_spout.aggregation.packing import PackedRecord, Packer, alone
from kinesis_spout.service.record_putter import OutgoingRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.service.shard_info import ShardInfo


@dataclass(frozen=True, slots=True)
class OutgoingAggregate(OutgoingRecord):
    """A record to put that holds others. `packed`: what it is made of."""

    packed: PackedRecord = field(kw_only=True, repr=False)


def users_of(record: OutgoingRecord) -> tuple[UserRecord, ...]:
    """The records of the user that are in it."""
    if isinstance(record, OutgoingAggregate):
        return record.packed.users
    return (UserRecord(record.partition_key, record.data, record.explicit_hash_key),)


def user_count(record: OutgoingRecord) -> int:
    """How many records of the user are in it."""
    return len(record.packed.users) if isinstance(record, OutgoingAggregate) else 1


class ShardPacker:
    """Packs records. For one thread; does no I/O. `shards`: a listing of the stream."""

    def __init__(self, shards: Iterable[ShardInfo]) -> None:
        self._ranges: dict[str, HashRange] = {}
        self._packer = self._new_packer(shards)

    def add(self, record: OutgoingRecord) -> list[OutgoingRecord]:
        """Pack a record, whose hash key is valid. Returns what is complete with it."""
        user = UserRecord(record.partition_key, record.data, record.explicit_hash_key)
        return [_outgoing(packed) for packed in self._packer.add(user)]

    def flush(self) -> list[OutgoingRecord]:
        """What is packed and was not returned yet."""
        return [_outgoing(packed) for packed in self._packer.flush()]

    def on_shards(self, shards: Iterable[ShardInfo]) -> list[OutgoingRecord]:
        """Pack for these shards from now on, also what was not returned yet. Returns what is
        complete.
        """
        users = [user for packed in self._packer.flush() for user in packed.users]
        self._packer = self._new_packer(shards)
        return [_outgoing(packed) for user in users for packed in self._packer.add(user)]

    def strays(self, record: OutgoingRecord, shard_id: str | None) -> list[OutgoingRecord]:
        """The records to put again, since `record` was put in this shard: those that its readers
        leave out, or all where the shard is not listed.
        """
        if not isinstance(record, OutgoingAggregate) or shard_id == record.packed.shard_id:
            return []
        taken_by = None if shard_id is None else self._ranges.get(shard_id)
        return [_outgoing(alone(user)) for user in record.packed.strays(taken_by)]

    def _new_packer(self, shards: Iterable[ShardInfo]) -> Packer:
        listed = list(shards)
        self._ranges = {shard.shard_id: HashRange(*shard.hash_key_range) for shard in listed}
        return Packer(
            (shard.shard_id, self._ranges[shard.shard_id])
            for shard in listed
            if not shard.is_closed
        )


def _outgoing(packed: PackedRecord) -> OutgoingRecord:
    if packed.is_aggregate:
        return OutgoingAggregate(
            packed.partition_key, packed.data, packed.explicit_hash_key, packed=packed
        )
    return OutgoingRecord(packed.partition_key, packed.data, packed.explicit_hash_key)
