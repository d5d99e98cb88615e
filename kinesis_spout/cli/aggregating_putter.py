"""Putting records as aggregates, for `produce --aggregate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.shards.shard_packer import ShardPacker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_spout.service.record_putter import OutgoingRecord, RecordPutter
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
        self._packer: ShardPacker | None = None

    def put(self, records: Sequence[OutgoingRecord]) -> int:
        """Put all records, and return how many there were. Blocks on the network. Raises what
        `RecordPutter.put` raises, and `ValueError` for an explicit hash key that is none.
        """
        if self._packer is None:
            self._packer = ShardPacker(self._list_shards())
        packer = self._packer
        packed = [one for record in records for one in packer.add(record)] + packer.flush()
        misplaced: list[tuple[OutgoingRecord, str | None]] = []

        def accepted(record: OutgoingRecord, shard_id: str | None) -> None:
            if packer.strays(record, shard_id):
                misplaced.append((record, shard_id))

        self._putter.put(packed, accepted)
        if misplaced:
            packer.on_shards(self._list_shards())
            strays = [stray for one in misplaced for stray in packer.strays(*one)]
            self._putter.put(strays)
        return len(records)
