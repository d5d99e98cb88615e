"""An AvailableNow run: which shards it still has to read, and how long it may wait for retries.

Pure but for its own memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

from state.retry_policy import SUSPICION_MS, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from state.plan import ShardReadResult
    from state.report import OutcomePolicy
    from state.shard_state import ShardState

RETRY_MARGIN_MS = 30_000
MAX_RETRY_WAIT_MS = 86_400_000


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
