"""The getter of a spout that polls: it reads a shard at its tip less often."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesis_spout.backoff import Backoff
from kinesis_spout.reading.shard_getter import OneAttemptGetter

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page
    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.services import SpoutServices
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState

_EMPTY_BEFORE_BACKOFF = 8
_GROWTH = 1.5


class TipGetter(OneAttemptGetter):
    """Reads on from a shard's read position. After a page at the tip it waits for the idle poll of
    the configuration.
    """

    keeps_lists = True

    def __init__(
        self,
        config: SpoutConfig,
        services: SpoutServices,
        state: ShardState,
        *,
        ending_sequence: SequenceNumber | None,
    ) -> None:
        super().__init__(
            services.client,
            state.shard_id,
            state.read_position,
            pacer=services.pacer(state.shard_id),
            clock=services.clock,
            random=services.random,
            ending_sequence=ending_sequence,
            refusal_timeout_s=math.inf,  # `SpoutOutages` tells how long is too long
        )
        self._idle = Backoff(
            config.idle_poll_s, max(config.idle_poll_s, config.max_idle_poll_s), growth=_GROWTH
        )
        self._idle_until_s = float("-inf")
        self._empty_in_a_row = 0

    def ready_at_s(self) -> float:
        return max(super().ready_at_s(), self._idle_until_s)

    def fetch_unless_throttled(self, limit: int) -> Page:
        page = super().fetch_unless_throttled(limit)
        if page.at_tip:
            # With records too: a call at once would use up the second's calls for single records,
            # and then wait for the next second.
            self._idle_until_s = self._clock.monotonic_s() + self._idle_s(page)
        return page

    def _idle_s(self, page: Page) -> float:
        """Longer from the ninth empty page on. A shard whose records come a second apart stays
        below that, and is polled at the same rate.
        """
        self._empty_in_a_row = 0 if page.count else self._empty_in_a_row + 1
        return self._idle.wait_s(1 + self._empty_in_a_row - _EMPTY_BEFORE_BACKOFF)
