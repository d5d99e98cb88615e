"""Probes: asks idle shards for new records from the driver, so that no empty batch has to."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kinesis_spout.errors import (
    ExpiredIteratorError,
    ShardNotFoundError,
    ThrottledError,
    UnreadableRecordError,
)
from kinesis_spout.programs.threads import NewPool, thread_pool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor, Future

    from kinesis_spout.service.client import KinesisClient
    from state.position import Position

MAX_CONCURRENT = 16
# An answer takes milliseconds, the first one of a process some hundred. Those that come late are
# left out of the next batch, so it is better to wait for all that do not hang.
PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Probe:
    """A question about one shard: is there anything to read from `position` on?

    `iterator` is a hint that may have expired.
    """

    shard_id: str
    position: Position
    iterator: str | None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The answer to a probe.

    - `position`: that of the probe. The answer is outdated if the shard was read on since.
    - `has_work`: the shard has a record, its end, or a stretch behind the tip to read. Also true
      for a throttled shard.
    - `iterator`: where the next read should start.
    - `tip_ms`: the service's time at the tip; None when the shard was not seen at its tip.
    - `gone`: the service does not know the shard, or no longer does. The next listings show which.
    """

    shard_id: str
    has_work: bool
    iterator: str | None
    tip_ms: int | None
    gone: bool = False
    position: Position | None = None


class Prober:
    """Asks each shard for one record, at most `MAX_CONCURRENT` shards at a time. For one thread."""

    def __init__(self, client: KinesisClient, new_pool: NewPool = thread_pool) -> None:
        self._client = client
        self._new_pool = new_pool
        self._pool: Executor | None = None
        self._asked: dict[str, Future[ProbeResult]] = {}

    def ask(self, probes: Sequence[Probe]) -> list[ProbeResult]:
        """Ask, and return the answers that have come, also those to earlier probes.

        Waits for the answers to `probes`, but no longer than `PATIENCE_S`: a shard whose call hangs
        must not delay the others. What comes later is returned by a later call. A shard is not
        asked again before it has answered. Raises `KinesisError`.
        """
        if self._pool is None:
            self._pool = self._new_pool(MAX_CONCURRENT, "kinesis-probe")
        asked = {
            probe.shard_id: self._pool.submit(self._ask, probe)
            for probe in probes
            if probe.shard_id not in self._asked
        }
        wait(asked.values(), timeout=PATIENCE_S)
        self._asked |= asked
        answered = [shard for shard, future in self._asked.items() if future.done()]
        # All leave together: a later call would raise an error that stayed as if it were new.
        done = [self._asked.pop(shard) for shard in answered]
        return [future.result() for future in done]

    @property
    def is_waiting(self) -> bool:
        """Whether an answer of any shard is still to come."""
        return bool(self._asked)

    def is_asking(self, shard_id: str) -> bool:
        """Whether an answer of the shard is still to come."""
        return shard_id in self._asked

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
            self._asked = {}

    def _ask(self, probe: Probe) -> ProbeResult:
        return replace(self._answer(probe), position=probe.position)

    def _answer(self, probe: Probe) -> ProbeResult:
        try:
            return self._look(probe)
        except (ThrottledError, ExpiredIteratorError, UnreadableRecordError):
            # Other consumers use up the shard's calls, or clocks disagree. An error here would end
            # the query, so the shard is left to a task, which retries for longer, and which reads
            # all that is before a record that cannot be read.
            return ProbeResult(probe.shard_id, has_work=True, iterator=probe.iterator, tip_ms=None)
        except ShardNotFoundError:
            return ProbeResult(
                probe.shard_id, has_work=False, iterator=None, tip_ms=None, gone=True
            )

    def _look(self, probe: Probe) -> ProbeResult:
        iterator = probe.iterator or self._client.shard_iterator(probe.shard_id, probe.position)
        try:
            fetched = self._client.get_records(iterator, 1, retry_throttled=False)
        except ExpiredIteratorError:
            iterator = self._client.shard_iterator(probe.shard_id, probe.position)
            fetched = self._client.get_records(iterator, 1, retry_throttled=False)
        page = fetched.page
        if page.count or page.next_iterator is None:
            return ProbeResult(probe.shard_id, has_work=True, iterator=iterator, tip_ms=None)
        if page.millis_behind_latest:
            return ProbeResult(
                probe.shard_id, has_work=True, iterator=page.next_iterator, tip_ms=None
            )
        return ProbeResult(
            probe.shard_id,
            has_work=False,
            iterator=page.next_iterator,
            tip_ms=fetched.service_time_ms,
        )
