"""Short constructors of a shard's pages and of their source, and of limits, for tests of the
spout's shards.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kinesis_spout.reading.page import Page
from kinesis_spout.service.get_records_decoder import ARRIVAL_TYPE, RecordColumns
from kinesis_spout.spout.config import SpoutConfig
from kinesis_spout.spout.tracked_shard import RecordRun, TrackedShard
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from tests.support.state.tracker import POLICY, SHARD, seeded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.retry_policy import RetryPolicy


def limits(**given: Any) -> SpoutConfig:
    """A configuration whose limits a test does not come to, but for those that are given."""
    wide: dict[str, Any] = {
        "max_pending": 100,
        "max_unresolved_per_shard": 100,
        "message_timeout_s": None,
        "prefetch_bytes": 1 << 20,
        "breaker_failures": None,
    }
    return SpoutConfig(stream="orders", **(wide | given))


def payload(number: int) -> bytes:
    return b"record %d" % number


def page_of(
    numbers: Sequence[int],
    *,
    shard_id: str = SHARD,
    at_tip: bool = False,
    ended: bool = False,
    time_ms: int | None = None,
    group: int = 1,
    size: int | None = None,
) -> Page:
    """A page whose records have these numbers. The arrival time of each, in ms, is its number.
    `size`: of each payload, in bytes.

    With a `group` above 1, so many neighbouring numbers are the user records of an aggregate.
    """
    columns = RecordColumns(
        [str(SequenceNumber(*divmod(number, group))) for number in numbers],
        [f"key {number}" for number in numbers],
        list(map(payload, numbers)) if size is None else [bytes(size)] * len(numbers),
        pa.array([number * 1000 for number in numbers], ARRIVAL_TYPE),
    )
    return Page(
        shard_id=shard_id,
        columns=columns,
        count=len(numbers),
        first=SequenceNumber(numbers[0] // group) if numbers else None,
        last=SequenceNumber(numbers[-1] // group) if numbers else None,
        last_arrival_ms=numbers[-1] if numbers else None,
        payload_bytes=columns.payload_bytes,
        millis_behind_latest=0 if at_tip else 1,
        next_iterator=None if ended else "next",
        ended=ended,
        at_tip=at_tip,
        service_time_ms=time_ms,
    )


def run_of(*numbers: int, group: int = 1) -> RecordRun:
    return RecordRun(*page_of(numbers, group=group).columns.lists())


class FakePages:
    """A `tracked_shard.PageSource`. Tests append to `pages`. Like the real one, it may drop a page
    without records.
    """

    def __init__(self, *pages: Page) -> None:
        self.pages = deque(pages)
        self.dropped = 0

    def add(self, page: Page) -> None:
        if self.pages and not self.pages[-1].count:
            self.pages.pop()
        self.pages.append(page)

    def first(self) -> Page | None:
        return self.pages[0] if self.pages else None

    def drop(self, page: Page) -> None:
        if self.pages and self.pages[0] is page:
            self.pages.popleft()
            self.dropped += 1


def tracked(
    *pages: Page, state: ShardState | None = None, policy: RetryPolicy = POLICY
) -> TrackedShard:
    """A tracked shard with these pages and no emission yet."""
    return tracked_from(FakePages(*pages), state=state, policy=policy)


def tracked_from(
    pages: FakePages | None, *, state: ShardState | None = None, policy: RetryPolicy = POLICY
) -> TrackedShard:
    begun = state or ShardState(shard_id=SHARD, read_position=TRIM_HORIZON)
    shard = TrackedShard(begun, retry_policy=policy, random=seeded(), pages=pages)
    shard.refill()
    return shard
