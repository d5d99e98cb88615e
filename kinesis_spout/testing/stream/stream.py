"""One stream: its shards, and the changes in progress.

A change (CREATING, UPDATING, DELETING) is a queue of steps with due times. Steps that are due are
done before each request, so time is only ever the injected clock's. During a reshard the parents
still accept records, as in the service.

A clock that is set back undoes nothing and delays nothing: what is active, listed or stored stays
so, and what is under way takes as long as before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from kinesis_spout.testing.errors import invalid_argument, limit_exceeded, not_found
from kinesis_spout.testing.stream.hash_keys import HashKeyRange, even_ranges
from kinesis_spout.testing.stream.shard import Shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.testing.stream.consumer import Consumer

AUTO, BY_KEY = "AUTO", "USER_PARTITION_KEY"
_HOUR_MS = 3_600_000


class Stream:
    """A stream of an account. Times in ms since 1970."""

    def __init__(
        self,
        *,
        name: str,
        arn: str,
        shard_count: int,
        created_ms: int,
        opened_ms: int,
        ready_ms: int,
        max_record_bytes: int,
        distribution: str | None = None,
    ) -> None:
        self.name = name
        self.arn = arn
        self.created_ms = created_ms
        self.max_record_bytes = max_record_bytes
        self.distribution = distribution  # None: a provisioned stream, which has no such setting
        self.retention_hours = 24
        self.shards: dict[str, Shard] = {}
        self.consumers: dict[str, Consumer] = {}
        self.scaled_ms: list[int] = []
        self.deleted_ms: int | None = None
        self._ready_ms = ready_ms
        self._opened_ms = self._seen_ms = opened_ms
        self._next_index = 0
        self._routes: list[Shard] | None = None
        self._counter = 0
        self._steps: deque[tuple[int, Callable[[int], None]]] = deque()
        for hash_keys in even_ranges(shard_count):
            self._open(hash_keys, (), opened_ms)

    def status(self, now_ms: int) -> str:
        if self.deleted_ms is not None:
            return "DELETING"
        if now_ms < self._ready_ms:
            return "CREATING"
        return "UPDATING" if self._steps else "ACTIVE"

    def settle(self, now_ms: int) -> None:
        """Do the steps that are due, and drop records and shards that are past retention."""
        if now_ms < self._seen_ms:
            self._set_back(self._seen_ms - now_ms)
        self._seen_ms = now_ms
        while self._steps and self._steps[0][0] <= now_ms:
            due_ms, step = self._steps.popleft()
            step(due_ms)
        if self.consumers:
            self.consumers = {
                name: consumer
                for name, consumer in self.consumers.items()
                if not consumer.is_gone(now_ms)
            }
        kept_ms = self._kept_ms(now_ms)
        for shard in list(self.shards.values()):
            shard.trim(kept_ms)
            if shard.closed_ms is not None and shard.closed_ms < kept_ms:
                del self.shards[shard.shard_id]

    def _set_back(self, by_ms: int) -> None:
        self._opened_ms -= by_ms
        self._ready_ms -= by_ms
        if self.deleted_ms is not None:
            self.deleted_ms -= by_ms
        self._steps = deque((due_ms - by_ms, step) for due_ms, step in self._steps)
        for shard in self.shards.values():
            shard.opened_ms -= by_ms

    def horizon_ms(self, now_ms: int) -> int:
        """The time before which no shard is listed."""
        # Not `created_ms`, which may be later than the clock.
        return max(self._opened_ms, self._kept_ms(now_ms))

    def _kept_ms(self, now_ms: int) -> int:
        """Records that arrived then or later are kept, also from before the stream: a test may put
        them with the arrival times of another one.
        """
        return now_ms - self.retention_hours * _HOUR_MS

    def open_shards(self) -> list[Shard]:
        """The open shards in order of their hash keys.

        The list is cached until the next change, because every put needs it.
        """
        if self._routes is None:
            opened = (shard for shard in self.shards.values() if shard.is_open)
            self._routes = sorted(opened, key=lambda shard: shard.hash_keys.start)
        return self._routes

    def shard(self, shard_id: str) -> Shard:
        try:
            return self.shards[shard_id]
        except KeyError:
            account = self.arn.split(":")[4]
            raise not_found(
                f"Shard {shard_id} in stream {self.name} under account {account} does not exist"
            ) from None

    def shard_for(self, hash_key: int) -> Shard:
        """The shard of a record with this hash key. An AUTO stream ignores it: its shards take
        turns.
        """
        shards = self.open_shards()
        if self.distribution == AUTO:
            return shards[self._counter % len(shards)]
        return shards[bisect_right(shards, hash_key, key=lambda shard: shard.hash_keys.start) - 1]

    def next_counter(self) -> int:
        self._counter += 1
        return self._counter

    def split(self, shard_id: str, new_start: int, *, now_ms: int, due_ms: int) -> None:
        shard = self._open_shard(shard_id)
        if not shard.hash_keys.start < new_start <= shard.hash_keys.end:
            raise invalid_argument(
                f"NewStartingHashKey {new_start} used in SplitShard() on shard {shard_id} in "
                f"stream {self.name} is not both "
                f"greater than one plus the shard's StartingHashKey {shard.hash_keys.start} and "
                "less than the shard's "
                f"EndingHashKey {shard.hash_keys.end}."
            )
        self._schedule(lambda at_ms: self._split(shard, new_start, at_ms), due_ms, now_ms)

    def merge(self, shard_id: str, adjacent_id: str, *, now_ms: int, due_ms: int) -> None:
        shard, adjacent = self._open_shard(shard_id), self._open_shard(adjacent_id)
        if (
            shard.hash_keys.end + 1 != adjacent.hash_keys.start
            and adjacent.hash_keys.end + 1 != shard.hash_keys.start
        ):
            raise invalid_argument(
                f"Shards {shard_id} and {adjacent_id} in stream {self.name} are not an adjacent "
                "pair of shards "
                "eligible for merging"
            )
        self._schedule(lambda at_ms: self._merge(shard, adjacent, at_ms), due_ms, now_ms)

    def scale(self, target: int, *, now_ms: int, due_ms: int) -> None:
        """Split and merge until there are `target` open shards of equal size.

        Shards in between live for a moment only.
        """
        count = len(self.open_shards())
        if target > 2 * count or 2 * target < count:
            raise limit_exceeded(
                f"UpdateShardCount cannot scale stream {self.name} from {count} to {target} "
                "shards: the new number must be between half and double the current one"
            )
        borders = {hash_keys.start for hash_keys in even_ranges(target)}
        have = {shard.hash_keys.start for shard in self.open_shards()}
        steps = len(borders - have) + len(have - borders)
        for step in range(1, steps + 1):
            at_ms = now_ms + (due_ms - now_ms) * step // steps
            self._schedule(lambda step_ms: self._step_towards(borders, step_ms), at_ms, now_ms)

    def _step_towards(self, borders: set[int], at_ms: int) -> None:
        shards = self.open_shards()
        missing = sorted(borders - {shard.hash_keys.start for shard in shards})
        if missing:
            self._split(self.shard_for(missing[0]), missing[0], at_ms)
            return
        left, right = next(
            pair for pair in pairwise(shards) if pair[1].hash_keys.start not in borders
        )
        self._merge(left, right, at_ms)

    def _schedule(self, step: Callable[[int], None], due_ms: int, now_ms: int) -> None:
        if due_ms <= now_ms:
            step(now_ms)
        else:
            self._steps.append((due_ms, step))

    def _split(self, shard: Shard, new_start: int, at_ms: int) -> None:
        shard.closed_ms = at_ms
        for hash_keys in shard.hash_keys.split_at(new_start):
            self._open(hash_keys, (shard,), at_ms)

    def _merge(self, shard: Shard, adjacent: Shard, at_ms: int) -> None:
        shard.closed_ms = adjacent.closed_ms = at_ms
        low, high = sorted(
            (shard.hash_keys, adjacent.hash_keys), key=lambda hash_keys: hash_keys.start
        )
        self._open(HashKeyRange(low.start, high.end), (shard, adjacent), at_ms)

    def _open(self, hash_keys: HashKeyRange, parents: tuple[Shard, ...], at_ms: int) -> None:
        # Not before the stream, whose creation may be later than the clock.
        times_s = (at_ms // 1000, self.created_ms // 1000)
        created_s = max([*times_s, *(parent.created_s + 1 for parent in parents)])
        shard = Shard(
            index=self._next_index,
            hash_keys=hash_keys,
            parents=tuple(parent.shard_id for parent in parents),
            created_s=created_s,
            opened_ms=at_ms,
        )
        self._next_index += 1
        self._routes = None
        self.shards[shard.shard_id] = shard
        for parent in parents:
            parent.children.append(shard.shard_id)

    def _open_shard(self, shard_id: str) -> Shard:
        shard = self.shard(shard_id)
        if not shard.is_open:
            raise invalid_argument(
                f"Shard {shard_id} in stream {self.name} has already been merged or split, "
                "and thus is not eligible for merging or splitting."
            )
        return shard
