"""Finds out what the next batch may read: the shards that have records, the retries that are due,
and how long to wait if there are neither.

The driver probes each shard for records. With too many shards for that, all shards are due at an
interval. An AvailableNow run continues until each shard is read up to the start of the run, and
waits for retries for a limited time.

Everything here is observed and may be lost at any time; nothing is stored. Methods that block on
Kinesis say so. For one thread.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.clock import SteadyTime
from kinesis_spout.errors import (
    ExpiredIteratorError,
    ShardNotFoundError,
    ThrottledError,
    UnreadableRecordError,
)
from kinesis_spout.service.shard_info import ITERATOR_LIFE_S
from state.retry_policy import SUSPICION_MS, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from kinesis_spout.service.shard_info import ShardInfo
    from kinesis_spout.shards.catalog import ShardCatalog
    from spark_job.driver.outcome_summary import OutcomeSummary
    from spark_job.driver.retry_queue import RetryQueue
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from state.plan import ShardReadResult
    from state.position import Position
    from state.shard_state import ShardState
    from state.store.shard_states import StoredState

log = logging.getLogger("kinesis_spout")
NEVER_S = float("-inf")
# The driver probes a few shards at a time and waits for the responses. With more shards than this,
# it would do little else, so the tasks search for new records instead.
PROBE_MAX_SHARDS = 100
IDLE_INTERVAL_S = 10.0
RETRY_MARGIN_MS = 30_000
MAX_RETRY_WAIT_MS = 86_400_000
MAX_CONCURRENT = 16
# A response takes milliseconds, the first one of a process some hundred. A shard whose response is
# late misses the next batch, so the driver waits for all responses that do not hang.
ANSWER_TIMEOUT_S = 2.0
POLL_S = 0.05
SHORTEST_PAUSE_S = 0.001  # a rounding error of floats may be too small to advance a clock
MAX_HINT_MS = 60_000  # a task tries to subscribe for at most this time (`executor.shard_feed`)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a look at a stream.

    - `shards`: the shards with something to read. `has_retries`: whether retries are due.
    - `delivery_limit`: the limit of a plan that has only retries (`OutcomeSummary.search_limit`).
    - `pause_s`: if nothing was found, the seconds until the next look; None if the wait is over.
    - `is_paused`: an operator has paused the application, so the driver did not look.
    """

    shards: Sequence[str] = ()
    has_retries: bool = False
    delivery_limit: int | None = None
    pause_s: float | None = None
    is_paused: bool = False

    @property
    def is_any(self) -> bool:
        return bool(self.shards) or self.has_retries


class Backlog:
    """The records of one stream that wait to be read. It shares its parts with the coordinator.

    `run`: the AvailableNow run, if there is one. `newest_plan_s`: the time of the newest plan, on
    the clock's monotonic scale. With more shards than `probe_max_shards`, all shards are due; while
    they are idle, once every `idle_interval_s`.
    """

    def __init__(
        self,
        settings: SourceSettings,
        services: ProcessServices,
        *,
        tips: ShardTips,
        catalog: ShardCatalog,
        outcomes: OutcomeSummary,
        retries: RetryQueue,
        probe_max_shards: int = PROBE_MAX_SHARDS,
        idle_interval_s: float = IDLE_INTERVAL_S,
    ) -> None:
        self._settings = settings
        self._clock = services.clock
        self._time = SteadyTime(services.clock, services.clock.now_ms())
        self._tips = tips
        self._catalog = catalog
        self._outcomes = outcomes
        self._retries = retries
        self._probe_max_shards = probe_max_shards
        self._idle_interval_s = idle_interval_s
        self._prober = Prober(settings, services, tips)
        self.newest_plan_s = NEVER_S
        self.run: AvailableNowRun | None = None

    def close(self) -> None:
        self._prober.close()

    # the time of retries --------------------------------------------------------------------------
    def set_time(self) -> int:
        """Set the time of retries to the machine's time of day, and return it. Outcomes that are
        stored now carry times of that clock.
        """
        self._time = SteadyTime(self._clock, self._clock.now_ms())
        return self.now_ms()

    def now_ms(self) -> int:
        """The time by which retries are due: the time that `set_time` set last, plus the time that
        has passed since. Setting the machine's clock during a wait does not change it.
        """
        return self._time.now_ms()

    def leftovers(self) -> str | None:
        """Warn of what an ending AvailableNow run leaves to the next run, and return it as text;
        None if it leaves nothing: shards that it did not read up to its start, and records that
        wait for a retry.
        """
        if self.run is None:
            return None
        left = []
        if unread := self._unread(self.run):
            log.warning(
                "the AvailableNow run is ending because maxSearchTime has passed. Some records "
                "from before the run's start are still unread in these shards or their child "
                "shards: %s",
                ", ".join(unread),
            )
            shards = "1 shard" if len(unread) == 1 else f"{len(unread):,} shards"
            left.append(f"{shards} not read up to the start of the run")
        if queued := self._retries.records():
            log.warning(
                "the AvailableNow run is ending and leaves %d records for the next run to retry. "
                "Option availableNowRetryWait sets how long a run waits for retries",
                queued,
            )
            left.append(f"{'1 record' if queued == 1 else f'{queued:,} records'} to be retried")
        return f"it left {' and '.join(left)}" if left else None

    # looking --------------------------------------------------------------------------------------
    def look(self, begun_s: float) -> Found:
        """Look once for something to read. `begun_s`: the start of the wait. Blocks on Kinesis."""
        run, now_ms = self.run, self.now_ms()
        wanted = [
            shard
            for shard in self._catalog.view.readable
            if not (run is not None and shard in run.done)
            and not self._outcomes.blocks_reading(shard, now_ms)
        ]
        shards = self._due_shards(wanted)
        # An AvailableNow run whose wait for retries is over plans no batch of retries only.
        has_retries = self._retries.is_due(now_ms) and (
            run is None or self._retry_wait_left_s(run) >= 0
        )
        if shards or has_retries:
            return Found(shards, has_retries, self._outcomes.search_limit(now_ms))
        left_s = self._wait_left_s(begun_s)
        # Until every probe is answered, it is not known whether there is something to read.
        if left_s <= 0 and not self._prober.is_waiting:
            return Found()
        pause_s = self._prober.pause_s(wanted if self._are_probed(wanted) else ())
        return Found(pause_s=min(pause_s, left_s) if left_s > 0 else pause_s)

    def _are_probed(self, shards: Sequence[str]) -> bool:
        return len(shards) <= self._probe_max_shards

    def _due_shards(self, shards: Sequence[str]) -> Sequence[str]:
        """The shards to plan now; empty while no shard is known to have something to read."""
        tips, now_s = self._tips, self._clock.monotonic_s()
        if not self._are_probed(shards):
            # All shards: at once if one of them may be behind its tip, otherwise at intervals.
            is_over = now_s - self.newest_plan_s >= self._idle_interval_s
            due = shards if is_over or not all(map(tips.is_at_tip, shards)) else []
            self._catalog.check_retention(due)
            return due
        answers = self._prober.ask(
            [shard for shard in shards if tips.is_at_tip(shard) is not False],
            self._catalog.states,
        )
        # Before the results are noted: a probe that sees the tip does not show whether records
        # expired before it or during it.
        self._catalog.check_retention(shards)
        for answer in answers:
            tips.on_answer(answer, self._clock.monotonic_s())
            if not answer.has_work and not answer.gone:
                self._on_tip(answer.shard_id)
        behind = {shard for shard in shards if tips.is_at_tip(shard) is False}
        if not behind:
            return []
        return [shard for shard in shards if shard in behind or self._prober.is_due(shard)]

    # waiting --------------------------------------------------------------------------------------
    def _retry_wait_left_s(self, run: AvailableNowRun) -> float:
        """Seconds for which the run may still wait for retries; negative if its wait is over."""
        longest_ms = self._settings.available_now_retry_wait_ms
        if longest_ms is None:
            policy = self._retries.policy
            longest_ms = retry_wait_ms(RetryPolicy() if policy is None else policy.retry)
        return longest_ms / 1000 - run.waited_s

    def _wait_left_s(self, begun_s: float) -> float:
        """Seconds for which a wait since `begun_s` may still last; 0 or less if it is over."""
        settings, run = self._settings, self.run
        waited_s = self._clock.monotonic_s() - begun_s
        if run is None:
            return settings.idle_wait_ms / 1000 - waited_s
        search_s, now_ms = 0.0, self.now_ms()
        if not all(self._outcomes.blocks_reading(shard, now_ms) for shard in self._unread(run)):
            search_s = max(settings.idle_wait_ms, settings.max_search_time_ms) / 1000 - waited_s
        next_ms = self._retries.next_ms()
        if next_ms is None:
            return search_s
        retry_wait_s = self._retry_wait_left_s(run)
        comes_in_time = (next_ms - now_ms) / 1000 <= retry_wait_s
        return max(search_s, retry_wait_s if comes_in_time else 0.0)

    def _unread(self, run: AvailableNowRun) -> list[str]:
        return run.unread(self._catalog.view.lineage.states, self._catalog.unfollowed())

    # observations ---------------------------------------------------------------------------------
    def on_read(self, read: ShardReadResult, *, is_of_this_run: bool, redelivered: bool) -> None:
        """Note what a settled plan has read from a shard.

        The tip that a plan of an earlier run saw may be days old, so it is forgotten. Records that
        will be redelivered count as unread: the read's next iterator would skip them.
        """
        self._tips.on_subscribed(read)
        if self.run is not None and not redelivered:
            self.run.on_read(read)
        if redelivered or not is_of_this_run:
            self._tips.forget(read.shard_id)
            return
        # The tip was seen after the plan was made. So the interval until the next probe counts from
        # the plan: a shard whose batch took longer than the interval is probed at once.
        checked_s = self._prober.checked_by_plan_s(self.newest_plan_s)
        self._tips.on_read(read, self._clock.monotonic_s(), checked_s=checked_s)
        if read.at_tip:
            self._on_tip(read.shard_id)

    def _on_tip(self, shard_id: str) -> None:
        if self.run is not None:
            self.run.on_tip(shard_id)


@dataclass(slots=True)
class AvailableNowRun:
    """One AvailableNow run. It reads at least all records that arrived up to `until_ms`.

    - `until_ms`: the service's time at the start of the run, plus a margin.
    - `waited_s`: seconds spent waiting, with nothing to plan, since the last new record was read.
    - `done`: the shards that the run has read far enough.
    """

    until_ms: int
    waited_s: float = 0.0
    done: set[str] = field(default_factory=set)
    _closed: dict[str, bool] = field(default_factory=dict)

    def on_read(self, read: ShardReadResult) -> None:
        """Note a read of a shard. The shard is done if its last record arrived after the run's
        start.
        """
        if read.count:
            self.waited_s = 0.0
        if read.last_arrival_ms is not None and read.last_arrival_ms > self.until_ms:
            self.done.add(read.shard_id)

    def note_closed(self, listed: Mapping[str, ShardInfo]) -> None:
        """Note which shards are closed, according to a listing of this run. The first listing of a
        shard counts: the run need not follow a later reshard.
        """
        for shard_id, shard in listed.items():
            self._closed.setdefault(shard_id, shard.is_closed)

    def on_tip(self, shard_id: str) -> None:
        """Note that a shard was read to its tip.

        An open shard is done at its tip. A closed shard is not: the run must read its end, and then
        its children.
        """
        if not self._closed.get(shard_id, False):
            self.done.add(shard_id)

    def unread(self, states: Mapping[str, ShardState], unfollowed: Iterable[str] = ()) -> list[str]:
        """Return the shards that may have unread records from before the run, in sorted order.

        Descendants of a done shard are not among them: they were created after the run's start.
        `unfollowed` shards were read to their ends, but their children are not known yet. Such a
        shard stands for its children, which Kinesis may list late.
        """
        done = set(self.done)
        unread = {shard for shard, state in states.items() if not state.end_was_read}.union(
            unfollowed
        ) - done
        # Repeat for grandchildren and so on, until no generation adds a shard.
        while later := {shard for shard in unread if done.intersection(states[shard].parents)}:
            done |= later
            unread -= later
        return sorted(unread)


@lru_cache(maxsize=4)  # called at each poll
def retry_wait_ms(policy: RetryPolicy) -> int:
    """Return the longest time until all retries of a record are due, plus a margin; at most a day.

    This is the default of `availableNowRetryWait`. A record that fails while nothing else succeeds
    is retried for `SUSPICION_MS`, or for its first delay, before its failures count.
    """
    steady = replace(policy, jitter=0.0)
    total_ms = RETRY_MARGIN_MS + max(SUSPICION_MS, policy.first_delay_ms)
    for attempts in range(1, policy.retry_limit + 1):
        delay_ms = steady.due_ms(attempts, 0, Random(0))  # noqa: S311  # unused without jitter
        total_ms += delay_ms
        if total_ms >= MAX_RETRY_WAIT_MS or not delay_ms:
            break
    return min(total_ms, MAX_RETRY_WAIT_MS)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe, which requests one record of a shard to see whether there is one.

    - `position`: the shard's read position. The result is outdated if the shard was read since.
    - `has_work`: there is a record, the shard's end, or a range before the tip to read. Also true
      for a throttled shard.
    - `iterator`: the iterator for the next read.
    - `tip_ms`: the service's time at the tip; None if the shard was not seen at its tip.
    - `gone`: Kinesis does not know the shard. The next listings show whether it has expired or is
      not visible yet.
    """

    shard_id: str
    position: Position
    has_work: bool
    iterator: str | None = None
    tip_ms: int | None = None
    gone: bool = False


@dataclass(slots=True)
class Tip:
    """The last observation of a shard's tip. Times are the clock's monotonic seconds, unless the
    name ends in `_ms`.

    - `checked_s`: when the shard was last checked. `at_tip`: whether it was at its tip then; None
      if that is not known.
    - `verified_ms`: the service's time at the last tip that a probe saw, or None.
    """

    checked_s: float = NEVER_S
    at_tip: bool | None = None
    iterator: str | None = None
    iterator_s: float = NEVER_S
    verified_ms: int | None = None
    next_read_ms: int | None = None
    next_subscribe_ms: int = 0

    def iterator_at(self, now_s: float) -> str | None:
        """Return an iterator for the shard's next read, unless it is about to expire."""
        return self.iterator if now_s - self.iterator_s < ITERATOR_LIFE_S else None

    def next_read_at(self, now_ms: int) -> int | None:
        """Return when Kinesis allows the next read of the shard; None if it allows one now."""
        next_ms = self.next_read_ms or 0
        return next_ms if next_ms > now_ms else None

    def next_subscribe_at(self, now_ms: int) -> int | None:
        """Return when Kinesis allows the next subscription to the shard; None if it allows one now.
        The clock of the machine that stored the time may be ahead, so a time that is too far away
        is ignored.
        """
        next_ms = self.next_subscribe_ms
        return next_ms if now_ms < next_ms <= now_ms + MAX_HINT_MS else None


@dataclass(slots=True)
class ShardTips:
    """The tips of all shards. It is a cache that may be lost: an unknown shard is probed again."""

    _tips: defaultdict[str, Tip] = field(default_factory=lambda: defaultdict(Tip))

    def of(self, shard_id: str) -> Tip:
        return self._tips[shard_id]

    def on_read(self, read: ShardReadResult, now_s: float, *, checked_s: float) -> None:
        """Note a task's read of the shard at `checked_s` or later. A shard that is gone counts as
        being at its tip: another plan would find nothing.
        """
        self.forget(read.shard_id)
        tip = self._tips[read.shard_id]
        tip.checked_s, tip.at_tip = checked_s, read.at_tip or read.gone
        tip.iterator, tip.iterator_s = read.iterator, now_s
        tip.next_read_ms = read.next_read_ms

    def on_subscribed(self, read: ShardReadResult) -> None:
        """Note when the shard may be subscribed to again, however old the read is."""
        if read.next_subscribe_ms is not None:
            tip = self._tips[read.shard_id]
            tip.next_subscribe_ms = max(tip.next_subscribe_ms, read.next_subscribe_ms)

    def forget(self, shard_id: str) -> None:
        """Forget the tip of a shard that was read at an unknown time: the observation is old."""
        self._tips[shard_id] = Tip(next_subscribe_ms=self._tips[shard_id].next_subscribe_ms)

    def on_answer(self, answer: ProbeResult, now_s: float) -> None:
        """Note the result of a probe."""
        tip = self._tips[answer.shard_id]
        tip.checked_s, tip.at_tip = now_s, not answer.has_work
        tip.iterator, tip.iterator_s = answer.iterator, now_s
        if answer.tip_ms is not None:
            tip.verified_ms = answer.tip_ms

    def is_at_tip(self, shard_id: str) -> bool | None:
        return self._tips[shard_id].at_tip

    def verified_ms(self, shard_id: str) -> int | None:
        return self._tips[shard_id].verified_ms

    def keep_only(self, shard_ids: Collection[str]) -> None:
        for shard in self._tips.keys() - set(shard_ids):
            del self._tips[shard]


class Prober:
    """Requests one record of each shard, at most once per probe interval since the shard's last
    check. Sends at most `MAX_CONCURRENT` requests at a time. For one thread.
    """

    def __init__(
        self, settings: SourceSettings, services: ProcessServices, tips: ShardTips
    ) -> None:
        self._client = services.client
        self._tips = tips
        self._clock = services.clock
        self._interval_s = settings.probe_interval_ms / 1000
        self._call_s = 1 / settings.rate.reads_per_second
        self._pool = services.new_pool(MAX_CONCURRENT, "kinesis-probe")
        self._asked: dict[str, Future[ProbeResult]] = {}

    def ask(self, shards: Iterable[str], states: Mapping[str, StoredState]) -> list[ProbeResult]:
        """Probe the shards that are due. Returns the results so far, also those of earlier probes.

        Waits for the responses, at most `ANSWER_TIMEOUT_S`: a request that hangs must not delay the
        other shards. A later call returns the late results. Raises `KinesisError`.
        """
        now_s = self._clock.monotonic_s()
        asked = {
            shard: self._pool.submit(
                self._answer,
                shard,
                states[shard].state.read_position,
                self._tips.of(shard).iterator_at(now_s),
            )
            for shard in shards
            if self.is_due(shard)
        }
        wait(asked.values(), timeout=ANSWER_TIMEOUT_S)
        self._asked |= asked
        answered = [shard for shard, future in self._asked.items() if future.done()]
        # All are removed together: an error that stayed would be raised again by a later call.
        done = [self._asked.pop(shard) for shard in answered]
        answers = [future.result() for future in done]
        return [
            answer
            for answer in answers
            # If the shard was read since the probe, the probe's iterator would repeat that read.
            if (stored := states.get(answer.shard_id)) is not None
            and stored.state.read_position == answer.position
        ]

    @property
    def is_waiting(self) -> bool:
        """Whether the response of any shard is outstanding."""
        return bool(self._asked)

    def is_due(self, shard_id: str) -> bool:
        """Whether the shard may be checked now. False while a response is outstanding: the request
        hangs, and a task's request would hang, too.
        """
        return self._due_in_s(shard_id) <= 0 and shard_id not in self._asked

    def pause_s(self, shards: Iterable[str]) -> float:
        """Return the seconds until the next probe of these shards is due; at most `POLL_S`, at
        which late responses and other changes are polled.
        """
        due_in_s = (self._due_in_s(shard) for shard in shards if shard not in self._asked)
        return min(POLL_S, max(min(due_in_s, default=POLL_S), SHORTEST_PAUSE_S))

    def checked_by_plan_s(self, planned_s: float) -> float:
        """Return when a shard counts as checked that was read by a plan made at `planned_s`. The
        probe and the task's page are two requests, and the shard's limit may allow two requests
        less often than once per probe interval.
        """
        return planned_s + max(0.0, 2 * self._call_s - self._interval_s)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _due_in_s(self, shard_id: str) -> float:
        return self._tips.of(shard_id).checked_s + self._interval_s - self._clock.monotonic_s()

    def _answer(self, shard_id: str, position: Position, iterator: str | None) -> ProbeResult:
        """Probe one shard, in a thread of the pool. `iterator`: a hint that may have expired."""
        answer = partial(ProbeResult, shard_id, position)
        try:
            begin = iterator or self._client.shard_iterator(shard_id, position)
            try:
                page = self._client.get_records(begin, 1, retry_throttled=False)
            except ExpiredIteratorError:
                begin = self._client.shard_iterator(shard_id, position)
                page = self._client.get_records(begin, 1, retry_throttled=False)
        except (ThrottledError, ExpiredIteratorError, UnreadableRecordError):
            # Other consumers use up the shard's requests, or clocks disagree. An error here would
            # end the query. So a task reads the shard: it retries for longer, and reads all records
            # before one that cannot be read.
            return answer(has_work=True, iterator=iterator)
        except ShardNotFoundError:
            return answer(has_work=False, gone=True)
        if page.count or page.next_iterator is None:
            return answer(has_work=True, iterator=begin)
        if page.millis_behind_latest:
            return answer(has_work=True, iterator=page.next_iterator)
        return answer(has_work=False, iterator=page.next_iterator, tip_ms=page.service_time_ms)
