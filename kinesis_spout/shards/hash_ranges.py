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
    before. `ignores_keys` is called once, then: whether the stream spreads records over its shards
    by itself, or may have, so that no record is in a shard because of its key. Both may block on
    the service.
    """

    def __init__(
        self,
        list_shards: Callable[[], Sequence[ShardInfo]],
        ignores_keys: Callable[[], bool] = lambda: False,
    ) -> None:
        self._list_shards = list_shards
        self._find_ignores_keys = ignores_keys
        self._ignores_keys: bool | None = None
        self._lock = threading.Lock()
        self._ranges: dict[str, HashRange] = {}

    def of(self, shard_id: str) -> HashRange | None:
        """The shard's range; None for a shard that is not listed, and in a stream that ignores
        keys. Raises what the two calls raise.
        """
        with self._lock:
            if self._ignores_keys is None:
                self._ignores_keys = self._find_ignores_keys()
            if self._ignores_keys:
                return None
            if shard_id not in self._ranges:
                for shard in self._list_shards():
                    self._ranges[shard.shard_id] = HashRange(*shard.hash_key_range)
            return self._ranges.get(shard_id)
