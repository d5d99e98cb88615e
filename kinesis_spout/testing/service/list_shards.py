"""ListShards: the shards that a filter shows, page by page (API reference, also `ShardFilter`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.testing.errors import invalid_argument
from kinesis_spout.testing.service import constraints, requests
from kinesis_spout.testing.service.account import Account
from kinesis_spout.testing.service.answers import (
    HashKeyRangeAnswer,
    ListShardsAnswer,
    SequenceNumberRangeAnswer,
    ShardAnswer,
)
from kinesis_spout.testing.service.tokens import ListToken, encode, page_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.testing.stream.hash_keys import HashKeyRange
    from kinesis_spout.testing.stream.shard import Shard
    from kinesis_spout.testing.stream.stream import Stream

_FILTERS = (
    "AFTER_SHARD_ID",
    "AT_TRIM_HORIZON",
    "FROM_TRIM_HORIZON",
    "AT_LATEST",
    "AT_TIMESTAMP",
    "FROM_TIMESTAMP",
)
_ALL_KEPT = requests.ShardFilter(type="FROM_TRIM_HORIZON")


class ShardListing(Account):
    """Each page continues after the last shard of the page before.

    Shards that are opened in the meantime are therefore listed too.
    """

    def list_shards(self, request: requests.ListShards) -> ListShardsAnswer:
        now_ms = self.clock.now_ms()
        stream, asked = self._asked(request, now_ms)
        limit = min(1_000, constraints.limit("maxResults", asked.max_results, default=1_000))
        is_shown = _filter_of(asked.shard_filter or _ALL_KEPT, stream, now_ms)
        if (status := stream.status(now_ms)) == "CREATING":
            raise self._not_active(stream, status)
        newest_ms = now_ms - self.settings.listing_delay_ms
        after = asked.exclusive_start_shard_id or ""
        shown = [
            shard
            for shard in stream.shards.values()
            if shard.shard_id > after and shard.opened_ms <= newest_ms and is_shown(shard)
        ]
        page, token = shown[:limit], None
        if len(shown) > limit:
            last_id = page[-1].shard_id
            rest = msgspec.structs.replace(asked, exclusive_start_shard_id=last_id)
            token = encode(ListToken(stream.name, stream.created_ms, now_ms, rest))
        return ListShardsAnswer(shards=[shard_answer(shard) for shard in page], next_token=token)

    def _asked(
        self, request: requests.ListShards, now_ms: int
    ) -> tuple[Stream, requests.ListShards]:
        """The stream, and what is asked for: with a page token, the rest of its listing."""
        if request.next_token is None:
            stream = self._stream_of(request)
            created_s = request.stream_creation_timestamp_s
            is_same = created_s is None or stream.created_ms // 1000 == int(created_s)
        else:
            beside = (
                request.stream_name,
                request.stream_arn,
                request.exclusive_start_shard_id,
                request.stream_creation_timestamp_s,
            )
            if any(member is not None for member in beside):
                raise invalid_argument("NextToken and StreamName cannot be provided together.")
            token = page_token(request.next_token, ListToken, now_ms)
            stream = self.stream(token.stream)
            is_same = token.created_ms == stream.created_ms
            size = token.rest.max_results if request.max_results is None else request.max_results
            request = msgspec.structs.replace(token.rest, max_results=size)
        if not is_same:
            raise invalid_argument(
                "NextToken or StreamCreationTimestamp belongs to another stream with the name "
                f"{stream.name}."
            )
        return stream, request


def shard_answer(shard: Shard) -> ShardAnswer:
    """A shard as ListShards and DescribeStream describe it."""
    ending = shard.ending_sequence
    parents: tuple[str | None, ...] = (*shard.parents, None, None)
    return ShardAnswer(
        shard_id=shard.shard_id,
        hash_key_range=range_answer(shard.hash_keys),
        sequence_number_range=SequenceNumberRangeAnswer(
            str(shard.starting_sequence), None if ending is None else str(ending)
        ),
        parent_shard_id=parents[0],
        adjacent_parent_shard_id=parents[1],
    )


def range_answer(hash_keys: HashKeyRange) -> HashKeyRangeAnswer:
    return HashKeyRangeAnswer(str(hash_keys.start), str(hash_keys.end))


def _filter_of(
    wanted: requests.ShardFilter, stream: Stream, now_ms: int
) -> Callable[[Shard], bool]:
    """Whether the filter shows a shard. Raises `ServiceError` for a wrong one."""
    kind = constraints.one_of("shardFilter.type", wanted.type, _FILTERS)
    if kind == "AFTER_SHARD_ID":
        shard_id = constraints.name("shardFilter.shardId", wanted.shard_id)
        return lambda shard: shard.shard_id > shard_id
    if kind == "AT_LATEST":
        return lambda shard: shard.is_open
    at_ms = stream.horizon_ms(now_ms)
    if kind.endswith("_TIMESTAMP"):
        time_ms = round(constraints.needed("shardFilter.timestamp", wanted.timestamp_s) * 1000)
        if time_ms > now_ms:
            raise invalid_argument(
                f"The Timestamp of ShardFilter lies in the future of stream {stream.name}."
            )
        at_ms = max(time_ms, at_ms)
    opened_ms = at_ms if kind.startswith("AT_") else now_ms
    return lambda shard: (
        shard.opened_ms <= opened_ms and (shard.closed_ms is None or shard.closed_ms >= at_ms)
    )
