"""A page: the records of one fetch of a shard, and what the service said beside them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.service.get_records_decoder import NO_RECORDS, DecodedPage
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Iterable

    from state.plan import ChildShard


def continue_shard(shard_id: str, child_shards: Iterable[ChildShard]) -> bool:
    """Whether one of these continues the shard. An answer that names such a child and nothing to go
    on with is evidence of the shard's end. Without a child it proves nothing, whether it was polled
    or pushed: the shard may be open, or closed with records left.
    """
    return any(shard_id in child.parents for child in child_shards)


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
    is_pushed: bool = False

    @classmethod
    def of(
        cls,
        decoded: DecodedPage,
        shard_id: str,
        *,
        next_iterator: str | None,
        ended: bool,
        at_tip: bool,
        latest_ms: int | None = None,
        is_pushed: bool = False,
    ) -> Self:
        """The page of an answer or an event, with what the reader makes of it."""
        return cls(
            shard_id=shard_id,
            columns=decoded.columns,
            count=decoded.count,
            first=decoded.first,
            last=decoded.last,
            last_arrival_ms=decoded.last_arrival_ms,
            payload_bytes=decoded.columns.payload_bytes,
            millis_behind_latest=decoded.millis_behind_latest or 0,
            child_shards=decoded.child_shards,
            next_iterator=next_iterator,
            ended=ended,
            at_tip=at_tip,
            service_time_ms=decoded.service_time_ms,
            latest_ms=latest_ms,
            is_pushed=is_pushed,
        )

    def without_records(self) -> Self:
        """What the page says, without its records: `count`, `first` and `last` stay. It may be kept
        for long without keeping payloads.
        """
        return self if self.columns is NO_RECORDS else replace(self, columns=NO_RECORDS)

    def head(self, count: int) -> Self:
        """The first `count` records as a page; the page itself if it has no more than that.

        A head that leaves records out is followed by these records. So it is neither at the tip nor
        at the shard's end, names no children, and does not know how far it is behind. It has no
        next iterator: that one would skip the records that were left out.
        """
        if count >= self.count:
            return self
        columns = self.columns.part(0, count)
        return replace(
            self,
            columns=columns,
            count=count,
            first=self.first if count else None,
            last=SequenceNumber.parse(columns.number_at(-1)) if count else None,
            last_arrival_ms=columns.last_arrival_ms() if count else None,
            payload_bytes=columns.payload_bytes,
            millis_behind_latest=0,
            child_shards=(),
            next_iterator=None,
            ended=False,
            at_tip=False,
        )

    def after(self, count: int) -> Self:
        """The page without its first `count` records."""
        if not count:
            return self
        columns = self.columns.part(count)
        left = self.count - count
        return replace(
            self,
            columns=columns,
            count=left,
            first=SequenceNumber.parse(columns.number_at(0)) if left else None,
            last=self.last if left else None,
            last_arrival_ms=self.last_arrival_ms if left else None,
            payload_bytes=columns.payload_bytes,
        )

    def up_to(self, last: SequenceNumber) -> int:
        """How many of its records have a sequence number up to `last`."""
        if self.last is None or self.last <= last:
            return self.count
        # The record itself is there, unless the service lost it: then all numbers are compared.
        numbers = self.records.column("sequenceNumber")
        index = int(pc.index(numbers, pa.scalar(str(last.sequence))).as_py())
        if index >= 0:
            return index + 1
        return sum(SequenceNumber.parse(text) <= last for text in numbers.to_pylist())

    def arrived_by(self, until_ms: int) -> int:
        """How many records come before the first one that arrived after `until_ms` (ms since 1970
        UTC).
        """
        micros = self.columns.arrivals.cast(pa.int64())
        is_late = pc.greater_equal(micros, (until_ms + 1) * 1000)
        index = int(pc.index(is_late, pa.scalar(value=True)).as_py())
        return self.count if index < 0 else index
