"""What the driver observes of each shard beside its stored state: whether it is at its tip, when it
was last checked, and hints for the next read. Idle shards are probed, so that no empty batch has to
look for new records.
"""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kinesis_spout.errors import (
    ExpiredIteratorError,
    ShardNotFoundError,
    ThrottledError,
    UnreadableRecordError,
)
from kinesis_spout.service.shard_info import ITERATOR_LIFE_S
from kinesis_spout.threads import NewPool, thread_pool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from state.plan import ShardReadResult
    from state.position import Position
    from state.store.shard_states import StoredState

MAX_CONCURRENT = 16
# An answer takes milliseconds, the first one of a process some hundred. Those that come late are
# left out of the next batch, so it is better to wait for all that do not hang.
ANSWER_TIMEOUT_S = 2.0
POLL_S = 0.05
SHORTEST_PAUSE_S = 0.001  # a remainder of a sum of floats may be too small to move a clock
MAX_HINT_MS = 60_000  # a task does not try for longer (`executor.shard_feed`)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The answer to a probe, which asks a shard whether there is anything to read.

    - `position`: where the shard stood. The answer is outdated if it was read on since.
    - `has_work`: the shard has a record, its end, or a stretch behind the tip to read. Also true
      for a throttled shard.
    - `iterator`: where the next read should start.
    - `tip_ms`: the service's time at the tip; None when the shard was not seen at its tip.
    - `gone`: the service does not know the shard, or no longer does. The next listings show which.
    """

    shard_id: str
    position: Position
    has_work: bool
    iterator: str | None = None
    tip_ms: int | None = None
    gone: bool = False


@dataclass(slots=True)
class _Tip:
    checked_s: float = float("-inf")
    at_tip: bool = False
    iterator: str | None = None
    iterator_s: float = float("-inf")
    verified_ms: int | None = None
    next_read_ms: int | None = None


@dataclass(slots=True)
class ShardTips:
    """A cache that may be lost: a shard that it does not know is probed again.

    Times are the clock's monotonic seconds, unless the name says `_ms`.
    """

    _tips: dict[str, _Tip] = field(default_factory=dict)
    _next_subscribe_ms: dict[str, int] = field(default_factory=dict)

    def on_end(self, end: ShardReadResult, now_s: float, *, checked_s: float | None = None) -> None:
        """Note what a task read of the shard, at `checked_s` or later; now by default. A shard that
        is gone counts as idle: another plan would find nothing.
        """
        self._tips[end.shard_id] = _Tip(
            now_s if checked_s is None else checked_s,
            end.at_tip or end.gone,
            end.iterator,
            now_s,
            next_read_ms=end.next_read_ms,
        )

    def on_subscribed(self, end: ShardReadResult) -> None:
        """Note when the shard may be subscribed to again. It holds whenever it was read."""
        if end.next_subscribe_ms is not None:
            known_ms = self._next_subscribe_ms.get(end.shard_id, 0)
            self._next_subscribe_ms[end.shard_id] = max(known_ms, end.next_subscribe_ms)

    def forget(self, shard_id: str) -> None:
        """Forget a shard that was read at an unknown time, since what is known of it is old."""
        self._tips.pop(shard_id, None)

    def on_answer(self, answer: ProbeResult, now_s: float) -> None:
        """Note the answer to a probe."""
        tip = self._tips.setdefault(answer.shard_id, _Tip())
        tip.checked_s, tip.at_tip = now_s, not answer.has_work
        tip.iterator, tip.iterator_s = answer.iterator, now_s
        if answer.tip_ms is not None:
            tip.verified_ms = answer.tip_ms

    def is_at_tip(self, shard_id: str) -> bool | None:
        """Whether the shard was at its tip when it was last checked; None for an unknown shard."""
        return self._tips[shard_id].at_tip if shard_id in self._tips else None

    def checked_s(self, shard_id: str) -> float:
        """When the shard was last checked; minus infinity if never."""
        return self._tips[shard_id].checked_s if shard_id in self._tips else float("-inf")

    def verified_ms(self, shard_id: str) -> int | None:
        """The service's time at the last tip that a probe saw; None without one."""
        return self._tips[shard_id].verified_ms if shard_id in self._tips else None

    def iterator(self, shard_id: str, now_s: float) -> str | None:
        """An iterator for the shard's next read, unless it is about to expire."""
        tip = self._tips.get(shard_id)
        return (
            tip.iterator if tip is not None and now_s - tip.iterator_s < ITERATOR_LIFE_S else None
        )

    def iterators(self, shard_ids: Sequence[str], now_s: float) -> dict[str, str]:
        return {
            shard: iterator
            for shard in shard_ids
            if (iterator := self.iterator(shard, now_s)) is not None
        }

    def next_reads(self, shard_ids: Iterable[str], now_ms: int) -> dict[str, int]:
        """Of the shards that the service does not let anybody read yet, when it will."""
        return {
            shard: tip.next_read_ms
            for shard in shard_ids
            if (tip := self._tips.get(shard)) is not None
            and tip.next_read_ms is not None
            and tip.next_read_ms > now_ms
        }

    def next_subscribes(self, shard_ids: Sequence[str], now_ms: int) -> dict[str, int]:
        """Of the shards that the service does not let anybody subscribe to yet, when it will. The
        clock of the machine that says so may be ahead: what is too far away is not believed.
        """
        return {
            shard: next_ms
            for shard in shard_ids
            if now_ms < (next_ms := self._next_subscribe_ms.get(shard, 0)) <= now_ms + MAX_HINT_MS
        }

    def keep_only(self, shard_ids: Collection[str]) -> None:
        self._tips = {shard: tip for shard, tip in self._tips.items() if shard in shard_ids}
        self._next_subscribe_ms = {
            shard: next_ms
            for shard, next_ms in self._next_subscribe_ms.items()
            if shard in shard_ids
        }


class Prober:
    """Asks shards for one record, each at most once per probe interval, counted from its last
    check. At most `MAX_CONCURRENT` at a time. For one thread.
    """

    def __init__(
        self,
        client: KinesisClient,
        tips: ShardTips,
        clock: Clock,
        *,
        interval_s: float,
        calls_per_second: float,
        new_pool: NewPool = thread_pool,
    ) -> None:
        self._client = client
        self._tips = tips
        self._clock = clock
        self._interval_s = interval_s
        self._call_s = 1 / calls_per_second
        self._new_pool = new_pool
        self._pool: Executor | None = None
        self._asked: dict[str, Future[ProbeResult]] = {}

    def ask(self, shards: Iterable[str], states: Mapping[str, StoredState]) -> list[ProbeResult]:
        """Ask those that are due. Returns the answers that have come, also those to earlier probes.

        Waits for the answers, but no longer than `ANSWER_TIMEOUT_S`: a shard whose call hangs must
        not delay the others. What comes later is returned by a later call. Raises `KinesisError`.
        """
        if self._pool is None:
            self._pool = self._new_pool(MAX_CONCURRENT, "kinesis-probe")
        now_s = self._clock.monotonic_s()
        asked = {
            shard: self._pool.submit(
                self._answer,
                shard,
                states[shard].state.read_position,
                self._tips.iterator(shard, now_s),
            )
            for shard in shards
            if self.is_due(shard)
        }
        wait(asked.values(), timeout=ANSWER_TIMEOUT_S)
        self._asked |= asked
        answered = [shard for shard, future in self._asked.items() if future.done()]
        # All leave together: a later call would raise an error that stayed as if it were new.
        done = [self._asked.pop(shard) for shard in answered]
        answers = [future.result() for future in done]
        return [
            answer
            for answer in answers
            # If the shard was read since, the iterator of the answer would read the same again.
            if (stored := states.get(answer.shard_id)) is not None
            and stored.state.read_position == answer.position
        ]

    @property
    def is_waiting(self) -> bool:
        """Whether an answer of any shard is still to come."""
        return bool(self._asked)

    def is_due(self, shard_id: str) -> bool:
        """Whether the shard may be checked now. Not while an answer of it is still to come: it
        hangs, and so would the task that reads it.
        """
        return self._due_in_s(shard_id) <= 0 and shard_id not in self._asked

    def pause_s(self, shards: Iterable[str]) -> float:
        """Seconds until the next of these probes is due, and at most `POLL_S`: late answers, and
        other things, are polled.
        """
        next_s = min(
            (self._due_in_s(shard) for shard in shards if shard not in self._asked),
            default=POLL_S,
        )
        return min(POLL_S, max(next_s, SHORTEST_PAUSE_S))

    def checked_by_plan_s(self, planned_s: float) -> float:
        """When a shard counts as checked that a plan of this time has read. Its probe and the
        task's page are two calls, which the shard's limit may allow less often than the interval.
        """
        return planned_s + max(0.0, 2 * self._call_s - self._interval_s)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
            self._asked = {}

    def _due_in_s(self, shard_id: str) -> float:
        return self._tips.checked_s(shard_id) + self._interval_s - self._clock.monotonic_s()

    def _answer(self, shard_id: str, position: Position, iterator: str | None) -> ProbeResult:
        """`iterator`: a hint that may have expired."""
        answer = partial(ProbeResult, shard_id, position)
        try:
            begin = iterator or self._client.shard_iterator(shard_id, position)
            try:
                page = self._client.get_records(begin, 1, retry_throttled=False)
            except ExpiredIteratorError:
                begin = self._client.shard_iterator(shard_id, position)
                page = self._client.get_records(begin, 1, retry_throttled=False)
        except (ThrottledError, ExpiredIteratorError, UnreadableRecordError):
            # Other consumers use up the shard's calls, or clocks disagree. An error here would end
            # the query, so the shard is left to a task, which retries for longer, and which reads
            # all that is before a record that cannot be read.
            return answer(has_work=True, iterator=iterator)
        except ShardNotFoundError:
            return answer(has_work=False, gone=True)
        if page.count or page.next_iterator is None:
            return answer(has_work=True, iterator=begin)
        if page.millis_behind_latest:
            return answer(has_work=True, iterator=page.next_iterator)
        return answer(has_work=False, iterator=page.next_iterator, tip_ms=page.service_time_ms)
