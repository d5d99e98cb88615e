"""When which shard is probed: at most once per `probeInterval`, counted from its last check."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kinesis_spout.clock import Clock
    from spark_job.driver.prober import Prober, ProbeResult
    from spark_job.driver.shard_tips import ShardTips
    from state.store.shard_states import StoredState

POLL_S = 0.05
SHORTEST_PAUSE_S = 0.001  # a remainder of a sum of floats may be too small to move a clock


class ProbeSchedule:
    """Asks the shards whose probes are due. For one thread."""

    def __init__(
        self,
        prober: Prober,
        tips: ShardTips,
        clock: Clock,
        *,
        interval_s: float,
        calls_per_second: float,
    ) -> None:
        self._prober = prober
        self._tips = tips
        self._clock = clock
        self._interval_s = interval_s
        self._call_s = 1 / calls_per_second

    def checked_by_plan_s(self, planned_s: float) -> float:
        """When a shard counts as checked that a plan of this time has read. Its probe and the
        task's page are two calls, which the shard's limit may allow less often than the interval.
        """
        return planned_s + max(0.0, 2 * self._call_s - self._interval_s)

    def is_due(self, shard_id: str) -> bool:
        """Whether the shard may be checked now. Not while an answer of it is still to come: it
        hangs, and so would the task that reads it.
        """
        return self._due_in_s(shard_id) <= 0 and not self._prober.is_asking(shard_id)

    def pause_s(self, shards: Iterable[str]) -> float:
        """Seconds until the next of these probes is due, and at most `POLL_S`: late answers, and
        other things, are polled.
        """
        next_s = min(
            (self._due_in_s(shard) for shard in shards if not self._prober.is_asking(shard)),
            default=POLL_S,
        )
        return min(POLL_S, max(next_s, SHORTEST_PAUSE_S))

    def ask(self, shards: Iterable[str], states: Mapping[str, StoredState]) -> list[ProbeResult]:
        """Ask those that are due. Returns the answers that have come, also to earlier probes. Waits
        for them as long as `Prober.ask` does.
        """
        now_s = self._clock.monotonic_s()
        answers = self._prober.ask(
            [
                self._tips.probe(shard, states[shard].state.read_position, now_s)
                for shard in shards
                if self.is_due(shard)
            ]
        )
        return [answer for answer in answers if _is_current(answer, states)]

    def _due_in_s(self, shard_id: str) -> float:
        return self._tips.checked_s(shard_id) + self._interval_s - self._clock.monotonic_s()


def _is_current(answer: ProbeResult, states: Mapping[str, StoredState]) -> bool:
    """Whether the shard was not read since: the iterator of an answer that is too late would read
    the same again.
    """
    stored = states.get(answer.shard_id)
    return stored is not None and stored.state.read_position == answer.position
