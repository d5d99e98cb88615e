"""What a batch may read now: the shards that have something to read, the retries that are due, and
how long to wait while there is neither.

Shards are probed, unless they are too many: then all are due after a time. An AvailableNow run is
due for as long as a shard is not read up to its start, and waits for retries for a time of its own.

All of it is observed, and may be lost at any time: nothing is stored here. Blocks on Kinesis where
it says so. For one thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_spout.clock import SteadyTime
from spark_job.driver.available_now import AvailableNowRun
from spark_job.driver.probe_schedule import ProbeSchedule
from spark_job.driver.prober import Prober

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesis_spout.shards.catalog import ShardCatalog
    from spark_job.driver.outcome_summary import OutcomeSummary
    from spark_job.driver.prober import ProbeResult
    from spark_job.driver.shard_tips import ShardTips
    from spark_job.process_services import ProcessServices
    from spark_job.settings import SourceSettings
    from state.plan import ShardReadResult

log = logging.getLogger("kinesis_spout")
NEVER_S = float("-inf")
# The driver asks a few shards at a time and waits for the answers. Of more shards than this it
# would do little else, so tasks look for their new records instead.
PROBE_MAX_SHARDS = 100
IDLE_INTERVAL_S = 10.0


class DueWork:
    """One per query. `shards`: those that the last look has found to be due.

    `tips`, `catalog` and `outcomes` are the coordinator's. With more shards than `probe_max_shards`
    all are due, once in `idle_interval_s` while they are idle.
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
        self._prober = Prober(services.client, services.new_pool)
        self._probes = ProbeSchedule(
            self._prober,
            tips,
            services.clock,
            interval_s=settings.probe_interval_ms / 1000,
            calls_per_second=settings.rate.reads_per_second,
        )
        self._newest_plan_s = NEVER_S
        self._run: AvailableNowRun | None = None
        self.shards: Sequence[str] = ()

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
        """What an AvailableNow run leaves, which is warned of, since it ends; None if nothing."""
        if self._run is None:
            return None
        unread, queued = self._unread(self._run), self._outcomes.queue.records()
        if unread:
            log.warning(
                "the run ends, though these shards, or their children, were not read up to its "
                "start within maxSearchTime: %s",
                ", ".join(unread),
            )
        if queued:
            log.warning(
                "the run ends, though %d records wait for their retry; the next run retries them, "
                "and option availableNowRetryWait sets how long a run waits for retries",
                queued,
            )
        return _left(len(unread), queued)

    # looking --------------------------------------------------------------------------------------
    def look(self, begun_s: float) -> float | None:
        """Look once, in a wait that began at `begun_s`. Blocks on Kinesis.

        Returns None when something was found or the wait is over, else the seconds to wait until
        the next look.
        """
        wanted = self._wanted_shards()
        self.shards = self._due_shards(wanted)
        left_s = self._wait_left_s(begun_s)
        # While an answer is missing, nobody knows whether there is something to read.
        is_over = left_s <= 0 and not self._prober.is_waiting
        if self.is_any or is_over:
            return None
        pause_s = self._probes.pause_s(self._probed(wanted))
        return min(pause_s, left_s) if left_s > 0 else pause_s

    @property
    def is_any(self) -> bool:
        """Whether there is something to plan: shards that the last look has found, or retries."""
        return bool(self.shards) or self.has_retries()

    def has_retries(self) -> bool:
        """Whether a plan may be made for retries alone.

        An AvailableNow run whose retry wait is over makes no more of them.
        """
        return self._outcomes.queue.is_due(self.now_ms()) and (
            self._run is None or self._retry_wait_left_s(self._run) >= 0
        )

    def forget(self) -> None:
        """Nothing is due, whatever the last look has found."""
        self.shards = ()

    def _wanted_shards(self) -> list[str]:
        """The shards of which new records may be read now."""
        run = self._run
        shards = [
            shard for shard in self._catalog.readable() if run is None or not run.is_done(shard)
        ]
        return [shard for shard in shards if not self._outcomes.holds(shard)]

    def _probed(self, shards: Sequence[str]) -> Sequence[str]:
        """The shards, unless they are too many to be probed: then none."""
        return shards if len(shards) <= self._probe_max_shards else ()

    def _due_shards(self, shards: Sequence[str]) -> Sequence[str]:
        """Those to plan now; empty while none is known to have something to read."""
        if shards and not self._probed(shards):
            due = shards if self._idle_interval_is_over(shards) else []
            self._catalog.check_retention(due)
            return due
        answers = self._probes.ask(
            [shard for shard in shards if not self._tips.is_behind(shard)], self._catalog.states
        )
        # Before the answers are noted: a tip that a probe has seen says nothing of what expired
        # before, also while it was asked.
        self._catalog.check_retention(shards)
        self._note(answers)
        if not any(self._tips.is_behind(shard) for shard in shards):
            return []
        return [
            shard for shard in shards if self._tips.is_behind(shard) or self._probes.is_due(shard)
        ]

    def _idle_interval_is_over(self, shards: Sequence[str]) -> bool:
        """Whether to plan all of the shards, which are too many to probe: at once when one of them
        is not known to be at its tip, else at intervals.
        """
        waited_s = self._clock.monotonic_s() - self._newest_plan_s
        return waited_s >= self._idle_interval_s or any(
            not self._tips.is_idle(shard) for shard in shards
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
        searched = [shard for shard in self._unread(run) if not self._outcomes.holds(shard)]
        search_s = (
            max(settings.idle_wait_ms, settings.max_search_time_ms) / 1000 - waited_s
            if searched
            else 0.0
        )
        next_ms = self._outcomes.queue.next_ms()
        if next_ms is None:
            return search_s
        patience_s = self._retry_wait_left_s(run)
        comes_in_time = (next_ms - self.now_ms()) / 1000 <= patience_s
        return max(search_s, patience_s if comes_in_time else 0.0)

    def _unread(self, run: AvailableNowRun) -> list[str]:
        return run.unread(self._catalog.shard_states(), self._catalog.unfollowed())

    # observations ---------------------------------------------------------------------------------
    def on_listed(self) -> None:
        """The catalog has listed the shards."""
        if self._run is not None:
            self._run.note_closed(self._catalog.closed())

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
        checked_s = self._probes.checked_by_plan_s(self._newest_plan_s)
        self._tips.on_end(end, self._clock.monotonic_s(), checked_s=checked_s)
        if end.at_tip:
            self._on_tip(end.shard_id)

    def _on_tip(self, shard_id: str) -> None:
        if self._run is not None:
            self._run.on_tip(shard_id)


def _left(unread: int, queued: int) -> str | None:
    """What an AvailableNow run leaves to the next one: shards that it did not read up to its start,
    and records that wait for their retry.
    """
    shards = "1 shard" if unread == 1 else f"{unread:,} shards"
    left = [f"{shards} not read up to its start"] if unread else []
    if queued:
        left.append(f"{'1 record' if queued == 1 else f'{queued:,} records'} to be retried")
    return f"it left {' and '.join(left)}" if left else None
