"""Whether records of a shard have expired before they were read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page
    from state.plan import ShardReadResult


@dataclass(slots=True)
class LapseDetector:
    """Finds whether records of a shard may have expired unread before its pages came: a page that
    comes more than the retention after the shard was last verified does not show what was before
    it. Pure; times are the service's, in ms.

    - `verified_ms`: no record before this time can have been missed; None if nothing is known.
    - `lapsed_ms`: when the first such page came, or None.
    """

    verified_ms: int | None
    retention_ms: int | None
    lapsed_ms: int | None = None

    def note(self, page: Page) -> None:
        """Take the next page of the shard, in order."""
        if self.verified_ms is None or self.retention_ms is None:
            return
        came_ms = page.service_time_ms if page.latest_ms is None else page.latest_ms
        if came_ms is not None and came_ms - self.retention_ms > self.verified_ms:
            self.lapsed_ms = self.lapsed_ms or came_ms
        self._verify(page.last_arrival_ms, page.service_time_ms if page.at_tip else None)

    def follow(self, entry: ShardReadResult) -> None:
        """Take the next entry of the log for the shard. What was missed before it, it says itself:
        its records may be read again long after they were read first.
        """
        self._verify(entry.last_arrival_ms, entry.tip_ms if entry.at_tip else None)

    def _verify(self, *times_ms: int | None) -> None:
        if self.verified_ms is not None:
            self.verified_ms = max(self.verified_ms, *(ms or 0 for ms in times_ms))
