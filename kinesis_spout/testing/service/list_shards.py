"""ListShards: the shards that a filter shows, page by page (API reference, also `ShardFilter`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.testing.errors import ServiceError, in_use, invalid_argument
from kinesis_spout.testing.service import constraints
from kinesis_spout.testing.service.account import Account
from kinesis_spout.testing.service.answers import (
    HashKeyRangeAnswer,
    ListShardsAnswer,
    SequenceNumberRangeAnswer,
    ShardAnswer,
)
from kinesis_spout.testing.service.tokens import ListToken, decode, encode

if TYPE_CHECKING:
    from kinesis_spout.testing.service import requests
    from kinesis_spout.testing.stream.hash_keys import HashKeyRange
    from kinesis_spout.testing.stream.shard import Shard
    from kinesis_spout.testing.stream.stream import Stream

_PAGE_LIMIT = 1_000
_FILTERS = (
    "AFTER_SHARD_ID",
    "AT_TRIM_HORIZON",
    "FROM_TRIM_HORIZON",
    "AT_LATEST",
    "AT_TIMESTAMP",
    "FROM_TIMESTAMP",
)


class ShardListing(Account):
    """Each page continues after the last shard of the page before.

    Shards that are opened in the meantime are therefore listed too.
    """

    def list_shards(self, request: requests.ListShards) -> ListShardsAnswer:
        now_ms = self.clock.now_ms()
        cursor = (
            self._first_page(request, now_ms)
            if request.next_token is None
            else self._next_page(request, now_ms)
        )
        stream = self.stream(cursor.stream)
        if cursor.created_ms != stream.created_ms:
            raise invalid_argument(
                "NextToken or StreamCreationTimestamp belongs to another stream with the name "
                f"{stream.name}."
            )
        status = stream.status(now_ms)
        if status == "CREATING":
            raise in_use(
                f"Stream {stream.name} under account {self.settings.account_id} not ACTIVE, "
                "instead in state CREATING"
            )
        newest_ms = now_ms - self.settings.listing_delay_ms
        after = cursor.after_shard_id
        shards = [
            shard
            for shard in stream.shards.values()
            if shard.shard_id > after and shard.opened_ms <= newest_ms
        ]
        shown = [shard for shard in shards if _is_shown(shard, cursor, stream.horizon_ms(now_ms))]
        page = shown[: cursor.max_results]
        token = None
        if len(shown) > len(page):
            token = encode(_moved(cursor, page[-1].shard_id, now_ms))
        return ListShardsAnswer(shards=[shard_answer(shard) for shard in page], next_token=token)

    def _first_page(self, request: requests.ListShards, now_ms: int) -> ListToken:
        stream = self._stream_of(request)
        created_ms = stream.created_ms
        if request.stream_creation_timestamp_s is not None and created_ms // 1000 != int(
            request.stream_creation_timestamp_s
        ):
            created_ms = -1
        wanted = request.shard_filter
        filter_type, filter_shard_id, timestamp_ms = "FROM_TRIM_HORIZON", None, None
        if wanted is not None:
            filter_type = constraints.one_of("shardFilter.type", wanted.type, _FILTERS)
            if filter_type == "AFTER_SHARD_ID":
                filter_shard_id = constraints.name("shardFilter.shardId", wanted.shard_id)
            if filter_type.endswith("_TIMESTAMP"):
                timestamp_ms = _filter_time(wanted, stream, now_ms)
        return ListToken(
            stream=stream.name,
            created_ms=created_ms,
            after_shard_id=request.exclusive_start_shard_id or "",
            filter_type=filter_type,
            filter_shard_id=filter_shard_id,
            filter_timestamp_ms=timestamp_ms,
            max_results=_page_size(request),
            issued_ms=now_ms,
        )

    def _next_page(self, request: requests.ListShards, now_ms: int) -> ListToken:
        beside = (
            request.stream_name,
            request.stream_arn,
            request.exclusive_start_shard_id,
            request.stream_creation_timestamp_s,
        )
        if any(member is not None for member in beside):
            raise invalid_argument("NextToken and StreamName cannot be provided together.")
        token = decode(constraints.needed("nextToken", request.next_token), ListToken)
        if token is None:
            raise invalid_argument("NextToken is invalid.")
        if token.expired(now_ms):
            raise ServiceError(
                "ExpiredNextTokenException",
                "The NextToken has expired: it was issued more than 300 seconds ago.",
            )
        return token if request.max_results is None else _resized(token, _page_size(request))


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


def _is_shown(shard: Shard, cursor: ListToken, horizon_ms: int) -> bool:
    at_ms = (
        horizon_ms
        if cursor.filter_timestamp_ms is None
        else max(cursor.filter_timestamp_ms, horizon_ms)
    )
    closed_later = shard.closed_ms is None or shard.closed_ms >= at_ms
    match cursor.filter_type:
        case "AFTER_SHARD_ID":
            return shard.shard_id > (cursor.filter_shard_id or "")
        case "AT_LATEST":
            return shard.is_open
        case "AT_TRIM_HORIZON" | "AT_TIMESTAMP":
            return shard.opened_ms <= at_ms and closed_later
        case _:
            return closed_later


def _filter_time(wanted: requests.ShardFilter, stream: Stream, now_ms: int) -> int:
    timestamp_ms = round(constraints.needed("shardFilter.timestamp", wanted.timestamp_s) * 1000)
    if timestamp_ms > now_ms:
        raise invalid_argument(
            f"The Timestamp of ShardFilter lies in the future of stream {stream.name}."
        )
    return timestamp_ms


def _page_size(request: requests.ListShards) -> int:
    wanted = _PAGE_LIMIT if request.max_results is None else request.max_results
    return min(_PAGE_LIMIT, constraints.number("maxResults", wanted, low=1, high=10_000))


def _moved(token: ListToken, after_shard_id: str, now_ms: int) -> ListToken:
    return msgspec.structs.replace(token, after_shard_id=after_shard_id, issued_ms=now_ms)


def _resized(token: ListToken, max_results: int) -> ListToken:
    return msgspec.structs.replace(token, max_results=max_results)
