"""Putting records as aggregates, for `produce --aggregate`."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from kinesis_spout.aggregation.packing import Packer, users_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kinesis_spout.service.record_putter import Accepted, OutgoingRecord, RecordPutter
    from kinesis_spout.service.shard_info import ShardInfo


class AggregatingPutter:
    """Puts records packed for the shards of their stream, with the interface of `RecordPutter`.

    The shards are listed at the first call, and again when an aggregate has come to another shard
    than its own.
    """

    def __init__(
        self, putter: RecordPutter, list_shards: Callable[[], Sequence[ShardInfo]]
    ) -> None:
        self._putter = putter
        self._list_shards = list_shards
        self._packer: Packer | None = None

    def put(
        self, records: Sequence[OutgoingRecord], accepted: Accepted = lambda _record, _shard: None
    ) -> int:
        """Put all records, and return how many there were. Blocks on the network. Raises what
        `RecordPutter.put` raises, and `ValueError` for an explicit hash key that is none.
        `accepted` gets each of the records that was put in its shard.
        """
        waiting: dict[OutgoingRecord, list[OutgoingRecord]] = defaultdict(list)
        for record in records:
            waiting[record].append(record)

        def on_put(users: Iterable[OutgoingRecord], shard_id: str | None) -> None:
            for user in users:
                accepted(waiting[user].pop(0), shard_id)

        if self._packer is None:
            self._packer = Packer(self._list_shards())
        packer = self._packer
        packed = [one for record in records for one in packer.add(record)] + packer.flush()
        misplaced: list[tuple[OutgoingRecord, str | None]] = []

        def on_packed(record: OutgoingRecord, shard_id: str | None) -> None:
            if packer.strays(record, shard_id):
                misplaced.append((record, shard_id))
            else:
                on_put(users_of(record), shard_id)

        self._putter.put(packed, on_packed)
        if misplaced:
            packer.on_shards(self._list_shards())
            strays: list[OutgoingRecord] = []
            for record, shard_id in misplaced:
                again = packer.strays(record, shard_id)
                left = Counter(user for one in again for user in users_of(one))
                on_put((Counter(users_of(record)) - left).elements(), shard_id)
                strays += again
            self._putter.put(strays, lambda record, shard_id: on_put(users_of(record), shard_id))
        return len(records)
