"""A page: the records of one fetch of a shard, and what the service said beside them; and whether
records have expired before their page came. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.service.get_records_decoder import NO_RECORDS, DecodedPage
from kinesis_spout.service.shard_info import HOUR_MS
from state.position import PositionKind
from state.sequence_number import SequenceNumber
from state.shard_state import verified_by_first_read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.service.get_records_decoder import RecordColumns
    from state.plan import ChildShard, ShardReadResult
    from state.position import Position

LONGEST_GAP_MS = HOUR_MS  # far less than the shortest retention, a day


def continue_shard(shard_id: str, child_shards: Iterable[ChildShard]) -> bool:
    """Whether one of these continues the shard. An answer that names such a child and nothing to go
    on with is evidence of the shard's end. Without a child it proves nothing, whether it was polled
    or pushed: the shard may be open, or closed with records left.
    """
    return any(shard_id in child.parents for child in child_shards)


def record_before(position: Position) -> SequenceNumber | None:
    """The record that a position lies after, none of which is read again from there. None where it
    lies elsewhere, and after a user record within an aggregate: the service gives that again.
    """
    last = position.sequence if position.kind is PositionKind.AFTER else None
    return None if last is None or last.sub else last


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(DecodedPage):
    """The result of one fetch: what the service answered, and what the getter makes of it. Its
    records are in sequence order.

    - `payload_bytes`: length of the data, decoded. It stays where the records are left out.
    - `at_tip`: nothing more was there when the service answered; `service_time_ms` is its clock
      then, to the second. Of a pushed page, whose time nobody knows, the earliest that it may be;
      `latest_ms` is the latest then.
    - `ended`: the shard ends after these records (there may be some), and there is evidence of it;
      `child_shards` continue it, as far as the service said.
    - `next_iterator`: None also where the service gave none without evidence of the end. Such a
      page is not `at_tip` either: nothing that a malformed answer says counts.
    - `millis_behind_latest`: 0 when the service did not tell.
    - `unbroken_since_ms`: the service's time of the first of the empty pages at the tip that it has
      replaced, with no long gap between two of them; None if there were none. It is not compared.
    - `is_pushed`: it came by a subscription.
    - `gone`: the service does not know the shard any more. The page is empty, and `ended` is
      false: nothing says how far the shard was read.
    """

    shard_id: str
    payload_bytes: int = 0
    millis_behind_latest: int = 0
    ended: bool = False
    at_tip: bool = False
    gone: bool = False
    latest_ms: int | None = None
    unbroken_since_ms: int | None = field(default=None, compare=False)
    is_pushed: bool = False

    @classmethod
    def of(
        cls,
        decoded: DecodedPage,
        shard_id: str,
        *,
        ended: bool,
        at_tip: bool,
        latest_ms: int | None = None,
        is_pushed: bool = False,
    ) -> Self:
        """The page of an answer or an event, with what the reader makes of it."""
        answered = {each.name: getattr(decoded, each.name) for each in fields(DecodedPage)}
        answered["millis_behind_latest"] = decoded.millis_behind_latest or 0
        answered["next_iterator"] = None if ended else decoded.next_iterator
        return cls(
            **answered,
            shard_id=shard_id,
            payload_bytes=decoded.columns.payload_bytes,
            ended=ended,
            at_tip=at_tip,
            latest_ms=latest_ms,
            is_pushed=is_pushed,
        )

    @property
    def came_ms(self) -> int | None:
        """The service's time when it answered, at the latest."""
        return self.service_time_ms if self.latest_ms is None else self.latest_ms

    def in_place_of(self, before: Page) -> Self | None:
        """The page, which then says what the page before it says, too. None if that has records,
        or was at the tip so much earlier that records may have expired since then.
        """
        if before.count:
            return None
        tip_ms = before.service_time_ms if before.at_tip else None
        if tip_ms is None:
            return self
        is_behind = not (self.at_tip or self.count)
        if is_behind or self.came_ms is None or self.came_ms - tip_ms > LONGEST_GAP_MS:
            return None
        since_ms = before.unbroken_since_ms
        return replace(self, unbroken_since_ms=before.came_ms if since_ms is None else since_ms)

    def without_records(self) -> Self:
        """What the page says, without its records: `count`, `first` and `last` stay. It may be kept
        for long without keeping payloads.
        """
        return self if self.columns is NO_RECORDS else replace(self, columns=NO_RECORDS)

    def head(self, count: int) -> Self:
        """The first `count` records as a page; the page itself if it has no more than that.

        A head that leaves records out is followed by these records. So it is neither at the tip nor
        at the shard's end, names no children, and does not know how far it is behind. It has no
        next iterator and no continuation: these would skip the records that were left out.
        """
        if count >= self.count:
            return self
        return replace(
            self._of(self.columns.part(0, count)),
            millis_behind_latest=0,
            child_shards=(),
            continuation=None,
            next_iterator=None,
            ended=False,
            at_tip=False,
        )

    def after(self, count: int) -> Self:
        """The page without its first `count` records."""
        return self._of(self.columns.part(count)) if count else self

    def _of(self, columns: RecordColumns) -> Self:
        """The page with these of its records."""
        return replace(self.with_records(columns), payload_bytes=columns.payload_bytes)

    def up_to(self, last: SequenceNumber) -> int:
        """How many of its records have a sequence number up to `last`."""

        def number(index: int) -> SequenceNumber:
            return SequenceNumber.parse(self.columns.number_at(index))

        return bisect_right(range(self.count), last, key=number)

    def arrived_by(self, until_ms: int) -> int:
        """How many records come before the first one that arrived after `until_ms` (ms since 1970
        UTC).
        """
        micros = self.columns.arrivals.cast(pa.int64())
        is_late = pc.greater_equal(micros, (until_ms + 1) * 1000)
        index = int(pc.index(is_late, pa.scalar(value=True)).as_py())
        return self.count if index < 0 else index


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
        since_ms = page.unbroken_since_ms
        came_ms = page.came_ms if since_ms is None else since_ms
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
