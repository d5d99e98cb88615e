"""What a batch may read now: the shards that have something to read, the retries that are due, and
how long to wait while there is neither.

Shards are probed, unless they are too many: then all are due after a time. An AvailableNow run is
due for as long as a shard is not read up to its start, and waits for retries for a time of its own.

All of it is observed, and may be lost at any time: nothing is stored here. Blocks on Kinesis where
it says so. For one thread.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.clock import SteadyTime
from spark_job.driver.prober import Prober
from state.retry_policy import SUSPICION_MS, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesis_spout.shards.catalog import ShardCatalog
    from spark_job.driver.outcome_summary import OutcomeSummary
    from spark_job.driver.prober import ProbeResult, ShardTips
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from state.plan import ShardReadResult
    from state.report import OutcomePolicy
    from state.shard_state import ShardState

log = logging.getLogger("kinesis_spout")
NEVER_S = float("-inf")
# The driver asks a few shards at a time and waits for the answers. Of more shards than this it
# would do little else, so tasks look for their new records instead.
PROBE_MAX_SHARDS = 100
IDLE_INTERVAL_S = 10.0
RETRY_MARGIN_MS = 30_000
MAX_RETRY_WAIT_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at a stream has found to plan.

    - `shards`: those that have something to read. `has_retries`: whether retries are due.
    - `pause_s`: the seconds to wait until the next look, where nothing was found; None where the
      wait is over.
    - `is_paused`: an operator has paused the application, so it was not looked.
    """

    shards: Sequence[str] = ()
    has_retries: bool = False
    pause_s: float | None = None
    is_paused: bool = False

    @property
    def is_any(self) -> bool:
        return bool(self.shards) or self.has_retries


class Backlog:
    """One per stream of a query. `tips`, `catalog` and `outcomes` are the coordinator's.

    With more shards than `probe_max_shards` all are due, once in `idle_interval_s` while they are
    idle.
    """

    def __init__(
        self,
        settings: SourceSettings,
        services: ProcessServices,
        *,
        tips: ShardTips,
        catalog: ShardCatalog,
        outcomes: OutcomeSummary,
        probe_max_shards: int = PROBE_MAX_SHARDS,
        idle_interval_s: float = IDLE_INTERVAL_S,
    ) -> None:
        self._settings = settings
        self._clock = services.clock
        self._time = SteadyTime(services.clock, services.clock.now_ms())
        self._tips = tips
        self._catalog = catalog
        self._outcomes = outcomes
        self._probe_max_shards = probe_max_shards
        self._idle_interval_s = idle_interval_s
        self._prober = Prober(
            services.client,
            tips,
            services.clock,
            interval_s=settings.probe_interval_ms / 1000,
            calls_per_second=settings.rate.reads_per_second,
            new_pool=services.new_pool,
        )
        self._newest_plan_s = NEVER_S
        self._run: AvailableNowRun | None = None

    def close(self) -> None:
        self._prober.close()

    # the time of retries --------------------------------------------------------------------------
    def set_time(self) -> int:
        """Take over the machine's time of day, with which the outcomes are stamped that are taken
        in now. Returns it.
        """
        self._time = SteadyTime(self._clock, self._clock.now_ms())
        return self.now_ms()

    def now_ms(self) -> int:
        """The time by which retries are due: what `set_time` took over last, and what has passed
        since. Who sets the machine's clock while the query waits does not change it.
        """
        return self._time.now_ms()

    # an AvailableNow run --------------------------------------------------------------------------
    def begin_available_now(self, until_ms: int) -> None:
        """From now on, the query reads up to this time of the service, and ends."""
        self._run = AvailableNowRun(until_ms)

    @property
    def is_available_now(self) -> bool:
        return self._run is not None

    @property
    def until_ms(self) -> int | None:
        """Up to when an AvailableNow run reads, by the service's clock; None for other queries."""
        return None if self._run is None else self._run.until_ms

    def waited(self, seconds: float) -> None:
        """Note that so long was waited, with nothing to plan."""
        if self._run is not None:
            self._run.waited_s += seconds

    def leftovers(self) -> str | None:
        """What an AvailableNow run leaves to the next one, which is warned of, since it ends:
        shards that it did not read up to its start, and records to be retried. None if nothing.
        """
        if self._run is None:
            return None
        left = []
        if unread := self._unread(self._run):
            log.warning(
                "the run ends, but these shards or their children were not read up to the start "
                "of the run within maxSearchTime: %s",
                ", ".join(unread),
            )
            shards = "1 shard" if len(unread) == 1 else f"{len(unread):,} shards"
            left.append(f"{shards} not read up to its start")
        if queued := self._outcomes.queue.records():
            log.warning(
                "the run ends and leaves %d records for the next run to retry. Option "
                "availableNowRetryWait sets how long a run waits for retries",
                queued,
            )
            left.append(f"{'1 record' if queued == 1 else f'{queued:,} records'} to be retried")
        return f"it left {' and '.join(left)}" if left else None

    # looking --------------------------------------------------------------------------------------
    def look(self, begun_s: float) -> Found:
        """Look once, in a wait that began at `begun_s`. Blocks on Kinesis."""
        wanted = self._wanted_shards()
        shards, has_retries = self._due_shards(wanted), self._has_retries()
        if shards or has_retries:
            return Found(shards, has_retries)
        left_s = self._wait_left_s(begun_s)
        # While an answer is missing, nobody knows whether there is something to read.
        if left_s <= 0 and not self._prober.is_waiting:
            return Found()
        pause_s = self._prober.pause_s(self._probed(wanted))
        return Found(pause_s=min(pause_s, left_s) if left_s > 0 else pause_s)

    def _has_retries(self) -> bool:
        """Whether a plan may be made for retries alone.

        An AvailableNow run whose retry wait is over makes no more of them.
        """
        return self._outcomes.queue.is_due(self.now_ms()) and (
            self._run is None or self._retry_wait_left_s(self._run) >= 0
        )

    def _wanted_shards(self) -> list[str]:
        """The shards of which new records may be read now."""
        run = self._run
        shards = [
            shard for shard in self._catalog.readable() if run is None or not run.is_done(shard)
        ]
        return [shard for shard in shards if not self._outcomes.blocks_reading(shard)]

    def _probed(self, shards: Sequence[str]) -> Sequence[str]:
        """The shards, unless they are too many to be probed: then none."""
        return shards if len(shards) <= self._probe_max_shards else ()

    def _due_shards(self, shards: Sequence[str]) -> Sequence[str]:
        """Those to plan now; empty while none is known to have something to read."""
        if shards and not self._probed(shards):
            due = shards if self._idle_interval_is_over(shards) else []
            self._catalog.check_retention(due)
            return due
        answers = self._prober.ask(
            [shard for shard in shards if self._tips.is_at_tip(shard) is not False],
            self._catalog.states,
        )
        # Before the answers are noted: a tip that a probe has seen says nothing of what expired
        # before, also while it was asked.
        self._catalog.check_retention(shards)
        self._note(answers)
        behind = {shard for shard in shards if self._tips.is_at_tip(shard) is False}
        if not behind:
            return []
        return [shard for shard in shards if shard in behind or self._prober.is_due(shard)]

    def _idle_interval_is_over(self, shards: Sequence[str]) -> bool:
        """Whether to plan all of the shards, which are too many to probe: at once when one of them
        is not known to be at its tip, else at intervals.
        """
        waited_s = self._clock.monotonic_s() - self._newest_plan_s
        return waited_s >= self._idle_interval_s or any(
            not self._tips.is_at_tip(shard) for shard in shards
        )

    def _note(self, answers: Iterable[ProbeResult]) -> None:
        for answer in answers:
            self._tips.on_answer(answer, self._clock.monotonic_s())
            if not answer.has_work and not answer.gone:
                self._on_tip(answer.shard_id)

    # waiting --------------------------------------------------------------------------------------
    def _retry_wait_left_s(self, run: AvailableNowRun) -> float:
        return run.wait_left_s(
            self._settings.available_now_retry_wait_ms, self._outcomes.queue.policy
        )

    def _wait_left_s(self, begun_s: float) -> float:
        """Seconds that a wait since `begun_s` may still last; 0 or less when it is over."""
        settings, run = self._settings, self._run
        waited_s = self._clock.monotonic_s() - begun_s
        if run is None:
            return settings.idle_wait_ms / 1000 - waited_s
        searched = [
            shard for shard in self._unread(run) if not self._outcomes.blocks_reading(shard)
        ]
        search_s = (
            max(settings.idle_wait_ms, settings.max_search_time_ms) / 1000 - waited_s
            if searched
            else 0.0
        )
        next_ms = self._outcomes.queue.next_ms()
        if next_ms is None:
            return search_s
        retry_wait_s = self._retry_wait_left_s(run)
        comes_in_time = (next_ms - self.now_ms()) / 1000 <= retry_wait_s
        return max(search_s, retry_wait_s if comes_in_time else 0.0)

    def _unread(self, run: AvailableNowRun) -> list[str]:
        return run.unread(self._catalog.shard_states(), self._catalog.unfollowed())

    # observations ---------------------------------------------------------------------------------
    def on_listed(self) -> None:
        """The catalog has listed the shards."""
        if self._run is not None:
            self._run.note_closed(self._catalog.stream.listing.closed)

    def on_planned(self, now_s: float) -> None:
        """A plan was made at this time of the clock's monotonic scale."""
        self._newest_plan_s = now_s

    def on_read(self, end: ShardReadResult, *, is_of_this_run: bool, redelivered: bool) -> None:
        """Note what a settled plan read of a shard.

        A plan of an earlier run was replayed, and its tips may be days old, so they are forgotten.
        Records that are delivered again count as not read: the iterator behind them would skip
        them.
        """
        self._tips.on_subscribed(end)
        if self._run is not None and not redelivered:
            self._run.on_read(end)
        if redelivered or not is_of_this_run:
            self._tips.forget(end.shard_id)
            return
        # The tip was seen after the plan was made, so the interval to the next probe begins there:
        # a shard whose batch took longer is probed at once.
        checked_s = self._prober.checked_by_plan_s(self._newest_plan_s)
        self._tips.on_end(end, self._clock.monotonic_s(), checked_s=checked_s)
        if end.at_tip:
            self._on_tip(end.shard_id)

    def _on_tip(self, shard_id: str) -> None:
        if self._run is not None:
            self._run.on_tip(shard_id)


@dataclass(slots=True)
class AvailableNowRun:
    """One AvailableNow run, which reads at least what arrived up to `until_ms`.

    - `until_ms`: the service's time at the start of the run, plus a margin.
    - `waited_s`: seconds spent waiting, with nothing to plan, since the last new record was read.
    """

    until_ms: int
    waited_s: float = 0.0
    _done: set[str] = field(default_factory=set)
    _closed: dict[str, bool] = field(default_factory=dict)

    def on_read(self, end: ShardReadResult) -> None:
        """Note what was read of a shard. The shard is done when its last record arrived after the
        run's start.
        """
        if end.count:
            self.waited_s = 0.0
        if end.last_arrival_ms is not None and end.last_arrival_ms > self.until_ms:
            self._done.add(end.shard_id)

    def note_closed(self, listed: Mapping[str, bool]) -> None:
        """Note which shards are closed, as a listing of this run shows. The first that shows a
        shard counts: what a later reshard closes, the run need not follow.
        """
        for shard_id, is_closed in listed.items():
            self._closed.setdefault(shard_id, is_closed)

    def on_tip(self, shard_id: str) -> None:
        """Note that a shard was read to its tip.

        An open shard is done at its tip. A closed shard is not: its end must be read, and then its
        children.
        """
        if not self._closed.get(shard_id, False):
            self._done.add(shard_id)

    def is_done(self, shard_id: str) -> bool:
        return shard_id in self._done

    def unread(self, states: Mapping[str, ShardState], unfollowed: Iterable[str] = ()) -> list[str]:
        """The shards that may hold unread records from before the run, in sorted order.

        Leaves out the descendants of a shard that was done: they were created after the run's
        start. `unfollowed` shards were read to their ends, but their children are not known yet.
        Such a shard stands for its children, which the shard list may show late.
        """
        done = set(self._done)
        unread = {shard for shard, state in states.items() if not state.end_was_read}.union(
            unfollowed
        ) - done
        # Children of children too, until no generation adds a shard.
        while later := {shard for shard in unread if done.intersection(states[shard].parents)}:
            done |= later
            unread -= later
        return sorted(unread)

    def wait_left_s(self, option_ms: int | None, policy: OutcomePolicy | None) -> float:
        """Seconds that the run may still wait for retries; negative when its wait is over."""
        longest_ms = (
            retry_wait_ms(RetryPolicy() if policy is None else policy.retry)
            if option_ms is None
            else option_ms
        )
        return longest_ms / 1000 - self.waited_s


@lru_cache(maxsize=4)  # it is asked for at each poll
def retry_wait_ms(policy: RetryPolicy) -> int:
    """The longest time in which all retries of a record become due, plus a margin; at most a day.

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
