"""The pages of the events that a subscription pushes. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.reading.page import Page, continue_shard
from kinesis_spout.service.record_columns import NO_RECORDS
from state.position import Position, PositionKind

if TYPE_CHECKING:
    from kinesis_spout.service.get_records_decoder import DecodedPage
    from kinesis_spout.service.subscription import SubscriptionEvent


def is_in_order(event: SubscriptionEvent) -> bool:
    """Whether its first record is not after its last one."""
    first, last = event.page.first, event.page.last
    return first is None or last is None or first <= last


def ends_without_children(event: SubscriptionEvent, shard_id: str) -> bool:
    """Whether it says that the shard has ended, but names no children of it: no evidence of the
    end, so the shard has to be polled.
    """
    return event.continuation is None and not continue_shard(shard_id, event.page.child_shards)


def page_of(event: SubscriptionEvent, shard_id: str, *, position: Position) -> Page:
    """The event as a page, without the records before `position`, which were read before."""
    decoded = event.page
    is_malformed = ends_without_children(event, shard_id)
    page = Page(
        shard_id=shard_id,
        columns=decoded.columns,
        count=decoded.count,
        first=decoded.first,
        last=decoded.last,
        last_arrival_ms=decoded.last_arrival_ms,
        payload_bytes=decoded.payload_bytes,
        millis_behind_latest=decoded.millis_behind_latest or 0,
        child_shards=decoded.child_shards,
        next_iterator=None,
        ended=event.continuation is None and not is_malformed,
        at_tip=_is_at_tip(decoded) and not is_malformed,
        service_time_ms=event.service_time_ms,
        latest_ms=event.latest_ms,
    )
    return _without(page, position)


def _is_at_tip(decoded: DecodedPage) -> bool:
    """An event without records that does not say how far behind it is comes at the tip."""
    behind_ms = decoded.millis_behind_latest
    return not decoded.count if behind_ms is None else not behind_ms


def _without(page: Page, position: Position) -> Page:
    """The page without records before the position. After a user record within an aggregate, the
    whole aggregate comes again, and is left to the reader of aggregates.
    """
    last = position.sequence
    if (
        position.kind is not PositionKind.AFTER
        or last is None
        or last.sub
        or page.first is None
        or page.first > last
    ):
        return page
    known = page.up_to(last)
    if known < page.count:
        return page.after(known)
    return replace(
        page,
        columns=NO_RECORDS,
        count=0,
        first=None,
        last=None,
        last_arrival_ms=None,
        payload_bytes=0,
    )
