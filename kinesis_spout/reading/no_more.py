"""What a shard that the service has forgotten gives: a last page without records."""

from __future__ import annotations

from kinesis_spout.reading.page import Page
from kinesis_spout.service.record_columns import NO_RECORDS


def no_more(shard_id: str, *, ended: bool = True) -> Page:
    return Page(
        shard_id=shard_id,
        columns=NO_RECORDS,
        count=0,
        first=None,
        last=None,
        last_arrival_ms=None,
        payload_bytes=0,
        millis_behind_latest=0,
        child_shards=(),
        next_iterator=None,
        ended=ended,
        at_tip=False,
        service_time_ms=None,
    )
