"""Whether records of a shard have expired before they were read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.shard_state import verified_by_first_read

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page
    from state.plan import ShardReadResult
    from state.position import Position


@dataclass(slots=True)
class ExpiryDetector:
    """Finds whether records of a shard may have expired unread before its pages came: a page that
    comes more than the retention after the shard was last verified does not show what was before
    it. Pure; times are the service's, in ms.

    - `verified_ms`: no record before this time can have been missed; None if nothing is known.
    - `position`: where the shard is read from.
    - `lapsed_ms`: when the first such page came, or None.
    """

    verified_ms: int | None
    retention_ms: int | None
    position: Position
    lapsed_ms: int | None = None
    _has_records: bool = False

    def note(self, page: Page) -> None:
        """Take the next page of the shard, in order."""
        if self.verified_ms is None or self.retention_ms is None:
            return
        came_ms = page.service_time_ms if page.latest_ms is None else page.latest_ms
        if came_ms is not None and came_ms - self.retention_ms > self.verified_ms:
            self.lapsed_ms = self.lapsed_ms or came_ms
        self._verify(page.last_arrival_ms, page.service_time_ms if page.at_tip else None)

    def follow(self, result: ShardReadResult) -> None:
        """Take the shard's next result in the log. What was missed before it, it says itself: its
        records may be read again long after they were read first.
        """
        self._verify(result.last_arrival_ms, result.tip_ms if result.at_tip else None)

    def acknowledge(self, until_ms: int) -> None:
        """What expired before this time was reported."""
        self.lapsed_ms = None
        self._verify(None, until_ms)

    def _verify(self, arrival_ms: int | None, tip_ms: int | None) -> None:
        if self.verified_ms is None:
            return
        if arrival_ms is not None and not self._has_records:
            self._has_records = True
            self.verified_ms = verified_by_first_read(self.verified_ms, self.position, arrival_ms)
        self.verified_ms = max(self.verified_ms, arrival_ms or 0, tip_ms or 0)
