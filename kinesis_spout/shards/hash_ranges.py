"""The hash keys of each shard of a stream, listed when they are needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kinesis_spout.aggregation.hash_range import HashRange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_spout.service.shard_info import ShardInfo


class ShardHashRanges:
    """The hash range of each shard. A shard's range never changes, so it is kept. For any thread.

    The first call of `of` lists the shards, and so does one that names a shard that was not listed
    before.
    """

    def __init__(self, list_shards: Callable[[], Sequence[ShardInfo]]) -> None:
        self._list_shards = list_shards
        self._lock = threading.Lock()
        self._ranges: dict[str, HashRange] = {}

    def of(self, shard_id: str) -> HashRange | None:
        """The shard's range; None for a shard that is not listed. May block on the service, and
        raises what the listing raises.
        """
        with self._lock:
            if shard_id not in self._ranges:
                for shard in self._list_shards():
                    self._ranges[shard.shard_id] = HashRange(*shard.hash_key_range)
            return self._ranges.get(shard_id)
