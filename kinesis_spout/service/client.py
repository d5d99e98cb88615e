"""The operations that read a stream: its identity, its shards, its records."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import (
    MalformedResponseError,
    RequestRefusedError,
    ServiceUnavailableError,
    UnreadableRecordError,
)
from kinesis_spout.service.botocore_connection import (
    ExpiredListingError,
    KinesisConnection,
)
from kinesis_spout.service.shard_info import ShardInfo, StreamSummary, service_time_ms
from kinesis_spout.service.subscription import EventShare, ShardSubscription
from kinesis_spout.service.wire import ANSWERED_S, EVENTS
from state.position import Position, PositionKind

if TYPE_CHECKING:
    from kinesis_spout.service.get_records_decoder import DecodedPage

log = logging.getLogger("kinesis_spout")
_LISTING_RESTARTS = 5


class KinesisClient(KinesisConnection):
    """A connection that reads one stream: its constructor, its retries and its threads are those of
    `KinesisConnection`.
    """

    def describe(self, *, retry: bool = True) -> StreamSummary:
        """The stream's identity, status and retention; raises `StreamNotFoundError`. With `retry`
        off it makes one attempt.
        """
        return self.call(
            "describe_stream_summary",
            self.stream_argument(),
            StreamSummary.of,
            retry=retry,
        )

    def list_shards(self) -> tuple[ShardInfo, ...]:
        """All shards that the service lists, including closed ones. An expired page token restarts
        the listing.
        """
        for _ in range(_LISTING_RESTARTS):
            with suppress(ExpiredListingError):
                return self._list_once()
        raise ServiceUnavailableError(
            f"the page token of the shard listing of {self.where} expired {_LISTING_RESTARTS} "
            "times",
            "try again later",
        )

    def shard_iterator(self, shard_id: str, position: Position, *, retry: bool = True) -> str:
        """An iterator at a position, valid for five minutes. Raises `ShardNotFoundError` and
        `RequestRefusedError`. With `retry` off it makes one attempt.

        A time that is not over by the service's clock gives an iterator at its time now, with a
        warning: the clock was set back since the time was stored.
        """
        asked_ms = position.timestamp_ms
        try:
            return self._iterator(shard_id, position, retry=retry)
        except RequestRefusedError:
            # Waiting until that time would pass over what arrives before it by the new clock.
            now_ms = None if asked_ms is None else self.service_time_ms()
            if asked_ms is None or now_ms is None or now_ms >= asked_ms:
                raise
        now = Position.at_timestamp(now_ms)
        log.warning(
            "%s: the service's clock was set back, so position %s of shard %s is now in the "
            "future. The shard is read from %s instead, which may deliver records from before "
            "the position",
            self.where,
            position,
            shard_id,
            now,
        )
        return self._iterator(shard_id, now, retry=retry)

    def _iterator(self, shard_id: str, position: Position, *, retry: bool) -> str:
        arguments = self.stream_argument() | {"ShardId": shard_id} | _iterator_arguments(position)
        iterator: str = self.call(
            "get_shard_iterator",
            arguments,
            itemgetter("ShardIterator"),
            about=f"shard {shard_id}",
            retry=retry,
        )
        return iterator

    def get_records(
        self, iterator: str, limit: int, *, retry_throttled: bool = True, retry: bool = True
    ) -> DecodedPage:
        """The records at an iterator, at most `limit` (1 to 10,000) and 10 MB.

        Raises `ExpiredIteratorError` and `UnreadableRecordError` at once. With `retry_throttled`
        off it raises `ThrottledError` at once too, for callers that pace themselves. With `retry`
        off it makes one attempt.
        """
        arguments: dict[str, Any] = {"ShardIterator": iterator, "Limit": limit}
        if self.stream.arn is not None:
            arguments["StreamARN"] = self.stream.arn

        def fetch() -> DecodedPage:
            wire = self.wire
            answer = self.send("get_records", arguments, about="a shard")
            try:
                page = wire.decode(answer)
            except UnreadableRecordError as exc:
                raise exc.at(self.where) from None
            except MalformedResponseError as exc:
                raise MalformedResponseError(f"{self.where}: {exc}") from exc
            return replace(
                page, service_time_ms=service_time_ms(answer), answered_s=answer[ANSWERED_S]
            )

        if not retry:
            return fetch()
        return self.retry(fetch, retry_throttled=retry_throttled)

    def subscribe(
        self,
        consumer_arn: str,
        shard_id: str,
        position: Position,
        share: EventShare | None = None,
    ) -> ShardSubscription:
        """Subscribe a consumer to a shard at a position. One attempt. Raises `ShardNotFoundError`
        also for a consumer that does not exist, and `SubscriptionInUseError` within five seconds
        of the subscription before.
        """
        about = f"shard {shard_id}"
        names = {
            "ShardIteratorType": "Type",
            "StartingSequenceNumber": "SequenceNumber",
            "Timestamp": "Timestamp",
        }
        start = {names[name]: value for name, value in _iterator_arguments(position).items()}
        arguments = {"ConsumerARN": consumer_arn, "ShardId": shard_id, "StartingPosition": start}
        answer = self.send("subscribe_to_shard", arguments, about=about)
        return ShardSubscription(
            answer[EVENTS],
            answered_s=answer[ANSWERED_S],
            where=f"the subscription to {about} of {self.where}",
            service_time_ms=service_time_ms(answer),
            refused=partial(self.raise_event_error, about),
            clock=self.clock,
            share=share,
        )

    def _list_once(self) -> tuple[ShardInfo, ...]:
        """A complete listing. Raises `ExpiredListingError` when a page token has expired."""
        shards: dict[str, ShardInfo] = {}

        def token_after(answer: dict[str, Any]) -> str | None:
            shards.update((shard.shard_id, shard) for shard in map(ShardInfo.of, answer["Shards"]))
            return answer.get("NextToken") or None

        arguments = self.stream_argument()
        while token := self.call("list_shards", arguments, token_after):
            arguments = {"NextToken": token}  # the service refuses the stream's name with a token
        return tuple(shards.values())


def _iterator_arguments(position: Position) -> dict[str, Any]:
    """The arguments of GetShardIterator for a position. Raises `RequestRefusedError` for
    SHARD_END.
    """
    sequence = position.sequence
    if position.timestamp_ms is not None:
        return {
            "ShardIteratorType": "AT_TIMESTAMP",
            "Timestamp": datetime.fromtimestamp(position.timestamp_ms / 1_000, UTC),
        }
    if sequence is not None:
        # Within a KPL aggregate the whole record must be read again: the service knows only whole
        # records.
        past = position.kind is PositionKind.AFTER and not sequence.sub
        kind = "AFTER_SEQUENCE_NUMBER" if past else "AT_SEQUENCE_NUMBER"
        return {"ShardIteratorType": kind, "StartingSequenceNumber": str(sequence.sequence)}
    if position.is_end:
        raise RequestRefusedError(
            "position SHARD_END has no iterator: there is nothing more to read there"
        )
    return {"ShardIteratorType": "TRIM_HORIZON"}
