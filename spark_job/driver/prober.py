"""Looking whether idle shards have something new, from the driver, without a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.errors import ExpiredIteratorError, ShardNotFoundError, ThrottledError
from kinesis_spout.thread_pools import NewPool, thread_pool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from kinesis_spout.service.client import KinesisClient
    from state.position import Position

MAX_CONCURRENT = 16


@dataclass(frozen=True, slots=True)
class Probe:
    """A question about one shard: is there anything from `position` on? `iterator` is a hint that
    may have expired.
    """

    shard_id: str
    position: Position
    iterator: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """`has_work`: a record, the shard's end, or a stretch behind the tip; also of a shard that is
    throttled.

    `iterator` starts where the next read should.
    `gone`: the service does not know the shard (any more); the next listings will tell.
    """

    shard_id: str
    has_work: bool
    iterator: str | None
    tip_ms: int | None
    gone: bool = False


class Prober:
    """Asks for one record of each shard, a bounded number of shards at a time. Blocks until all
    have answered.
    """

    def __init__(self, client: KinesisClient, new_pool: NewPool = thread_pool) -> None:
        self._client = client
        self._new_pool = new_pool
        self._pool: Executor | None = None

    def ask(self, probes: Sequence[Probe]) -> list[Answer]:
        if len(probes) <= 1:
            return [self._ask(probe) for probe in probes]
        if self._pool is None:
            self._pool = self._new_pool(MAX_CONCURRENT, "kinesis-probe")
        return list(self._pool.map(self._ask, probes))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _ask(self, probe: Probe) -> Answer:
        try:
            return self._look(probe)
        except (ThrottledError, ExpiredIteratorError):
            # Others use the shard up, or clocks disagree. A task has the patience that a driver
            # lacks: its error ends the query.
            return Answer(probe.shard_id, has_work=True, iterator=probe.iterator, tip_ms=None)
        except ShardNotFoundError:
            return Answer(probe.shard_id, has_work=False, iterator=None, tip_ms=None, gone=True)

    def _look(self, probe: Probe) -> Answer:
        iterator = probe.iterator or self._client.shard_iterator(probe.shard_id, probe.position)
        try:
            fetched = self._client.get_records(iterator, 1, retry_throttled=False)
        except ExpiredIteratorError:
            iterator = self._client.shard_iterator(probe.shard_id, probe.position)
            fetched = self._client.get_records(iterator, 1, retry_throttled=False)
        page = fetched.page
        if page.count or page.next_iterator is None:
            return Answer(probe.shard_id, has_work=True, iterator=iterator, tip_ms=None)
        if page.millis_behind_latest:
            return Answer(probe.shard_id, has_work=True, iterator=page.next_iterator, tip_ms=None)
        return Answer(
            probe.shard_id,
            has_work=False,
            iterator=page.next_iterator,
            tip_ms=fetched.service_time_ms,
        )
