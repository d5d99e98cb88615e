"""A run that ends: what it has still to read, and how long it waits for what failed. Pure but for
its own memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from state.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from state.plan import ShardReadResult
    from state.report import OutcomePolicy
    from state.shard_state import ShardState

RETRY_MARGIN_MS = 30_000
MAX_RETRY_WAIT_MS = 86_400_000


@dataclass(slots=True)
class AvailableNowRun:
    """One run. It has to read what arrived up to `until_ms`, the service's time when it began, and
    somewhat later.

    `waited_s`: how long it has waited in all, since it read its last new record, while there was
    nothing to plan.
    """

    until_ms: int
    waited_s: float = 0.0
    _done: set[str] = field(default_factory=set)

    def on_read(self, end: ShardReadResult) -> None:
        """A shard is done at a record that arrived later."""
        if end.count:
            self.waited_s = 0.0
        if end.last_arrival_ms is not None and end.last_arrival_ms > self.until_ms:
            self._done.add(end.shard_id)

    def on_tip(self, shard_id: str, *, is_closed: bool) -> None:
        """An open shard at its tip is done. A closed one is not: its end has to be read, and then
        its children.
        """
        if not is_closed:
            self._done.add(shard_id)

    def is_done(self, shard_id: str) -> bool:
        return shard_id in self._done

    def unread(self, states: Mapping[str, ShardState], unfollowed: Iterable[str] = ()) -> list[str]:
        """Shards that may have records from before the run, also those that the shard list does not
        show yet.

        What continues a shard that was open at its tip is not among them: it was made later.
        `unfollowed` shards were read, but who continues them is not known yet: such a one stands
        for its children.
        """
        done = set(self._done)
        unread = {shard for shard, state in states.items() if not state.end_was_read}.union(
            unfollowed
        ) - done
        while later := {shard for shard in unread if done.intersection(states[shard].parents)}:
            done |= later
            unread -= later
        return sorted(unread)

    def wait_left_s(self, option_ms: int | None, policy: OutcomePolicy | None) -> float:
        """How much longer it may wait for retries; below 0 when it has waited long enough."""
        longest_ms = (
            retry_wait_ms(RetryPolicy() if policy is None else policy.retry)
            if option_ms is None
            else option_ms
        )
        return longest_ms / 1000 - self.waited_s


def retry_wait_ms(policy: RetryPolicy) -> int:
    """How long all retries of a record take to come, each at its latest, and a margin; at most a
    day.
    """
    steady = replace(policy, jitter=0.0)
    total_ms = RETRY_MARGIN_MS
    for attempts in range(1, policy.retry_limit + 1):
        delay_ms = steady.due_ms(attempts, 0, Random(0))  # noqa: S311  # without jitter, chance has no say
        total_ms += delay_ms
        if total_ms >= MAX_RETRY_WAIT_MS or not delay_ms:
            break
    return min(total_ms, MAX_RETRY_WAIT_MS)
