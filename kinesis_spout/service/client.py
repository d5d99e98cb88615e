"""The client of Kinesis: what it reads of one stream, its connection, its retries, and what the
answers that are errors mean.

botocore finds credentials, signs and sends. It does not retry: `KinesisClient.retry` does, so that
retries are not nested in two layers. Its serializer and its parser never see a record (`wire`).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import botocore.exceptions as vendor
from botocore.parsers import ResponseParserError
from botocore.session import Session
from tenacity import RetryCallState, Retrying, retry_if_exception

from kinesis_spout.backoff import Backoff
from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import AwsConfig, StreamRef, did_you_mean
from kinesis_spout.errors import (
    ConfigError,
    CredentialsError,
    ExpiredIteratorError,
    KinesisError,
    MalformedResponseError,
    RequestRefusedError,
    ServiceUnavailableError,
    ShardNotFoundError,
    StaleCredentialsError,
    StreamNotFoundError,
    ThrottledError,
    UnreadableRecordError,
)
from kinesis_spout.service.botocore_session import code_of, local_error, new_client, new_session
from kinesis_spout.service.faults import meaning_of, missing_right
from kinesis_spout.service.shard_info import (
    ShardInfo,
    StreamSummary,
    keep_summary_body,
    service_time_ms,
)
from kinesis_spout.service.subscription import EventShare, ShardSubscription
from kinesis_spout.service.surroundings import endpoint_in, place_in_words
from kinesis_spout.service.wire import ANSWERED_S, EVENTS, Wire
from state.position import Position, PositionKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.service.get_records_decoder import DecodedPage

_T = TypeVar("_T")
log = logging.getLogger("kinesis_spout")
_LISTING_RESTARTS = 5
_SYSTEM_CLOCK = SystemClock()
_FAILED = Backoff(first_s=0.4, longest_s=10.0, least=0.25)
# A body that was truncated on the network is complete some time later. One that the service sends
# malformed, as that of a wrong endpoint, stays so, and the user waits for the error.
_MALFORMED_FOR_S = 15.0

# Guards the lazy creation of clients. A fork may happen while another thread holds it, so a child
# process starts with a new one.
_building = threading.Lock()


def _renew_lock() -> None:
    global _building  # noqa: PLW0603  # a child process must not inherit a held lock
    _building = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


# The calls by which botocore gets credentials, from STS and from IAM Identity Center.
_GIVE_CREDENTIALS = frozenset({"AssumeRole", "AssumeRoleWithWebIdentity", "GetRoleCredentials"})
# botocore has found no credentials, or not all. Those that were found may be replaced.
_NOT_FOUND = (
    vendor.NoCredentialsError,
    vendor.NoAuthTokenError,
    vendor.PartialCredentialsError,
    vendor.ProfileNotFound,
    vendor.ConfigParseError,
)
# What botocore raises without an answer of the service.
_LOCAL_FAULTS = (
    vendor.BotoCoreError,
    ResponseParserError,
    ValueError,
    AttributeError,
    TypeError,
    KeyError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsInUse:
    """Where credentials come from; never the credentials.

    - `provider`: botocore's name of it, like `env`, `shared-credentials-file`, `assume-role`.
    - `expires_ms`: ms since 1970; None if that is not known.
    - `is_temporary`: they have a session token, so they expire.
    """

    provider: str
    expires_ms: int | None
    is_temporary: bool


class KinesisClient:
    """Calls the operations of one stream; `RecordPutter` puts by it.

    Methods block on the network, may be called from many threads, and raise `KinesisError`.
    Transient faults are retried for `retry_for_s` seconds; other errors are raised at once. The
    constructor only keeps its arguments, and a pickle holds nothing else: each process opens its
    own connection.

    Once the service has answered, credentials that it refuses, or that are not found any more, are
    transient: they are looked up again at each attempt, as somebody may be replacing them.
    `answered_before`: it has answered another process of this job. `as_lists`: see `Wire`.
    """

    def __init__(
        self,
        aws: AwsConfig,
        stream: StreamRef,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        retry_for_s: float = 60,
        random: Random | None = None,
        as_lists: bool = False,
        answered_before: bool = False,
    ) -> None:
        self.aws = aws
        self.stream = stream
        self.clock = clock
        self.random = random or Random()  # noqa: S311  # jitter, not a secret
        self.wire = Wire(aws.wire_format, clock=clock, as_lists=as_lists)
        self._retry_for_s = retry_for_s
        self._as_lists = as_lists
        self._answered_before = answered_before
        self._was_answered = False
        # Once a client was made: it, with its process; the region that it uses, whoever named that;
        # and its place.
        self._built: tuple[int, Any] | None = None
        self._region = stream.region_or(aws.region)
        self._place: str | None = None

    def __reduce__(self) -> tuple[Callable[..., KinesisClient], tuple[AwsConfig, StreamRef]]:
        make = partial(
            type(self),
            clock=self.clock,
            retry_for_s=self._retry_for_s,
            as_lists=self._as_lists,
            answered_before=self._answered_before or self._was_answered,
        )
        return make, (self.aws, self.stream)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where})"

    @property
    def where(self) -> str:
        """The stream and its endpoint or region, for messages."""
        return f"stream {self.stream.name} {self.place}"

    @property
    def place(self) -> str:
        """`in` a region, or `at` an endpoint, as `place_in_words` has it. Reads files before the
        first call.
        """
        return self._place or place_in_words(self.aws, self._region)

    def close(self) -> None:
        """Close this process's connections. The next call opens new ones and looks credentials up
        again.
        """
        built, self._built = self._built, None
        # A forked child has its parent's client, whose sockets the parent still uses.
        if built is not None and built[0] == os.getpid():
            built[1].close()

    def stream_argument(self) -> dict[str, Any]:
        """The argument that names the stream: by ARN, if that is how it was configured."""
        arn, name = self.stream.arn, self.stream.name
        return {"StreamName": name} if arn is None else {"StreamARN": arn}

    # reading --------------------------------------------------------------------------------------
    def describe(self, *, retry: bool = True) -> StreamSummary:
        """The stream's identity, status and retention; raises `StreamNotFoundError`. With `retry`
        off it makes one attempt.
        """
        stream = self.stream_argument()
        return self.call("describe_stream_summary", stream, StreamSummary.of, retry=retry)

    def list_shards(self) -> tuple[ShardInfo, ...]:
        """All shards that the service lists, each once, including closed ones. An expired page
        token restarts the listing.
        """
        shards: dict[str, ShardInfo] = {}

        def token_after(answer: dict[str, Any]) -> str | None:
            for shard in map(ShardInfo.of, answer["Shards"]):
                # One that is listed twice, open and closed, has been closed in between.
                if shard.shard_id not in shards or shard.is_closed:
                    shards[shard.shard_id] = shard
            return answer.get("NextToken") or None

        for _ in range(_LISTING_RESTARTS):
            shards.clear()
            arguments = self.stream_argument()
            with suppress(ExpiredIteratorError):
                while token := self.call("list_shards", arguments, token_after):
                    arguments = {"NextToken": token}  # the service refuses the name with a token
                return tuple(shards.values())
        raise ServiceUnavailableError(
            f"a listing of the shards of {self.where} failed, because its page token expired "
            f"{_LISTING_RESTARTS} times",
            "wait a few minutes, and run the command or job again",
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
            "%s: Kinesis's clock was set back, so position %s of shard %s is in the future. The "
            "shard is read from %s, so records before the configured position may be delivered",
            self.where,
            position,
            shard_id,
            now,
        )
        return self._iterator(shard_id, now, retry=retry)

    def _iterator(self, shard_id: str, position: Position, *, retry: bool) -> str:
        arguments = self.stream_argument() | {"ShardId": shard_id} | _iterator_arguments(position)
        about, of = f"shard {shard_id}", itemgetter("ShardIterator")
        iterator: str = self.call("get_shard_iterator", arguments, of, about=about, retry=retry)
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
            answer = self.send("get_records", arguments, about="a shard")
            try:
                page = self.wire.decode(answer)
            except UnreadableRecordError as exc:
                raise exc.at(self.where) from None
            except MalformedResponseError as exc:
                raise MalformedResponseError(f"{self.where}: {exc}") from exc
            return replace(
                page, service_time_ms=service_time_ms(answer), answered_s=answer[ANSWERED_S]
            )

        return self.retry(fetch, retry_throttled=retry_throttled) if retry else fetch()

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

    # calling --------------------------------------------------------------------------------------
    def call(
        self,
        operation: str,
        arguments: dict[str, Any],
        understand: Callable[[dict[str, Any]], _T],
        *,
        about: str | None = None,
        retry: bool = True,
    ) -> _T:
        """Call an operation and return its answer as `understand` parses it, with retries unless
        `retry` is off.

        A KeyError, TypeError or ValueError of `understand` means that the answer is incomplete.
        `about`: the part of the stream that the call concerns, for messages.
        """

        def attempt() -> _T:
            answer = self.send(operation, arguments, about=about)
            try:
                return understand(answer)
            except (KeyError, TypeError, ValueError) as exc:
                raise MalformedResponseError(
                    f"Kinesis's response to {operation} for {self.where} is incomplete",
                    "check the endpoint's URL",
                ) from exc

        return self.retry(attempt) if retry else attempt()

    def retry(self, call: Callable[[], _T], *, retry_throttled: bool = True) -> _T:
        """Run `call` until it succeeds. Raises its error when that is not transient, and its last
        error when no attempt can begin within `retry_for_s` seconds of the first.

        Attempts are not counted: with jitter, a number of them may be used up in the first seconds
        of an outage that ends soon.
        """
        clock, begun_s = self.clock, self.clock.monotonic_s()

        def is_last(state: RetryCallState) -> bool:
            return clock.monotonic_s() + state.upcoming_sleep > begun_s + self._retry_for_s

        def is_transient(exc: BaseException) -> bool:
            if isinstance(exc, MalformedResponseError) and not isinstance(
                exc, UnreadableRecordError
            ):
                return clock.monotonic_s() < begun_s + _MALFORMED_FOR_S
            if isinstance(exc, ThrottledError) and not retry_throttled:
                return False
            return isinstance(exc, KinesisError) and exc.retryable

        retrying = Retrying(
            sleep=clock.sleep,
            stop=is_last,
            wait=lambda state: _FAILED.wait_s(state.attempt_number, self.random),
            retry=retry_if_exception(is_transient),
            reraise=True,
        )
        return retrying(call)

    def send(
        self, operation: str, arguments: dict[str, Any], *, about: str | None
    ) -> dict[str, Any]:
        """One attempt. Credentials that are refused are looked up again, unless that was just done:
        a file or a role may have new ones.
        """
        may_be_old = self._built is not None
        while True:
            client: Any = None
            try:
                with self._translated(about):
                    client = self._vendor_client()
                    answer: dict[str, Any] = getattr(client, operation)(**arguments)
            except CredentialsError:
                self._drop(client)
                if not may_be_old:
                    raise
                may_be_old = False
            else:
                self._was_answered = True
                return answer

    def _drop(self, client: Any) -> None:
        """Close a client, unless another thread has dropped it and made a new one."""
        with _building:
            if self._built is None or self._built[1] is not client:
                return
            self._built = None
        client.close()

    def raise_event_error(self, about: str, code: str, message: str) -> NoReturn:
        """Translate an exception event of a subscription, as the same error of an answer."""
        status = 500 if code.startswith("Internal") else 400
        response: Any = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        self._raise_service_error(vendor.ClientError(response, "SubscribeToShard"), about)

    def service_time_ms(self) -> int | None:
        """The service's clock, also from an answer that refuses the call: ms since 1970, to the
        second; None if the answer has no date. One attempt.
        """
        with self._translated():
            try:
                answer = self._vendor_client().describe_stream_summary(**self.stream_argument())
            except vendor.ClientError as exc:
                if exc.operation_name in _GIVE_CREDENTIALS:
                    raise
                answer = exc.response
        return service_time_ms(answer)

    def credentials_in_use(self) -> CredentialsInUse:
        """Where the credentials come from, and until when they are valid. Calls STS when a role is
        to be assumed. Raises `CredentialsError`.
        """
        with self._translated():
            with _building:
                session = new_session(self.aws, self._region)
            credentials = session.get_credentials()
            if credentials is None:
                raise vendor.NoCredentialsError
            frozen = credentials.get_frozen_credentials()
        expiry = getattr(credentials, "_expiry_time", None)  # botocore offers no other way
        return CredentialsInUse(
            provider=credentials.method,
            expires_ms=None if expiry is None else round(expiry.timestamp() * 1_000),
            is_temporary=frozen.token is not None,
        )

    def _vendor_client(self) -> Any:
        """The botocore client of this process. Creating it reads files, and calls STS when a role
        is to be assumed.
        """
        built = self._built
        if built is not None and built[0] == os.getpid():
            return built[1]
        with _building:
            built = self._built
            if built is None or built[0] != os.getpid():
                client = new_client(
                    self.aws,
                    "kinesis",
                    region=self._region,
                    endpoint_url=self.aws.endpoint_url,
                    attempts=1,
                    max_pool_connections=64,
                    tcp_keepalive=True,
                )
                self._region = client.meta.region_name
                self._place = place_in_words(self.aws, self._region)
                self.wire.hook(client, self.where)
                client.meta.events.register(
                    "before-parse.kinesis.DescribeStreamSummary", keep_summary_body
                )
                built = self._built = (os.getpid(), client)
            return built[1]

    @contextmanager
    def _translated(self, about: str | None = None) -> Iterator[None]:
        try:
            yield
        except vendor.ClientError as exc:
            self._raise_service_error(exc, about)
        except _LOCAL_FAULTS as exc:
            self._raise_local_error(exc)

    def _raise_service_error(self, exc: vendor.ClientError, about: str | None) -> NoReturn:
        """Translate an error that the service (or STS) answered with."""
        code = code_of(exc)
        status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        kind, advice = meaning_of(code, status, operation=exc.operation_name)
        if kind is RequestRefusedError and exc.operation_name in _GIVE_CREDENTIALS:
            kind = CredentialsError
        where = f"{about} of {self.where}" if about else self.where
        if kind is CredentialsError and (self._was_answered or self._answered_before):
            kind = StaleCredentialsError
            advice = f"{advice}; put the new credentials where the job reads them"
        if exc.operation_name in _GIVE_CREDENTIALS:
            role = f"role {self.aws.role_arn}" if self.aws.role_arn else "the profile's role"
            raise kind(f"cannot assume {role} for {self.where} ({code})", advice) from None
        if issubclass(kind, CredentialsError):
            # The service's message may quote the request with its signed headers, so it is neither
            # shown nor chained.
            raise kind(f"AWS refuses the credentials for {where} ({code})", advice) from None
        message = str(exc.response.get("Error", {}).get("Message", "")).splitlines()[:1]
        failed = (
            f"{exc.operation_name} failed for {where} "
            f"({code}{': ' + message[0][:300] if message else ''})"
        )
        if kind is StreamNotFoundError and about is not None:
            # The service has one code for a missing shard and a missing stream. To describe the
            # stream raises when that is missing.
            self.describe()
            if exc.operation_name == "SubscribeToShard":  # the code of a missing consumer, too
                remedy = "list the stream's registered consumers with kinesis-spout consumers list"
                raise ShardNotFoundError(failed, remedy) from exc
            raise ShardNotFoundError(
                f"{where} does not exist, because the shard has expired or belongs to "
                "another stream"
            ) from exc
        if kind is RequestRefusedError and exc.operation_name == "GetRecords":
            kind = ExpiredIteratorError  # the iterator is the only argument that can be wrong here
        raise kind(failed, next(filter(None, map(missing_right, message)), advice)) from exc

    def _raise_local_error(self, exc: Exception) -> NoReturn:
        """Translate an error of botocore's own, raised without an answer of the service."""
        if isinstance(exc, KinesisError):  # our own, which may be a ValueError
            raise exc
        if isinstance(exc, vendor.EndpointConnectionError) and not (
            self._was_answered or self._answered_before
        ):
            self._check_region_is_known(exc)
        error = local_error(exc, self.aws, self.where)
        is_missing = isinstance(exc, _NOT_FOUND)
        may_come = self._was_answered or (self._answered_before and not is_missing)
        if may_come and (is_missing or isinstance(error, CredentialsError)):
            error = StaleCredentialsError(str(error))
        raise error from exc

    def _check_region_is_known(self, exc: vendor.EndpointConnectionError) -> None:
        """Raise `ConfigError` where the host that is made of the region has no address, and no
        partition lists the region: a retry cannot help. The failure of a host that the
        configuration names is an outage, and so is that of a name server. An unlisted region may be
        reachable, so this is called only after a failed connection.
        """
        session, region = Session(profile=self.aws.profile), self._region
        host = urlsplit(exc.kwargs["endpoint_url"]).hostname or ""
        configured = self.aws.endpoint_url or endpoint_in(session)
        is_configured = configured is not None and host == urlsplit(configured).hostname
        if region is None or region not in host or is_configured or not _is_unknown_name(exc):
            return
        known = [
            name
            for part in session.get_available_partitions()
            for name in session.get_available_regions("kinesis", part)
        ]
        if region in known:
            return
        hint = did_you_mean(region, known)
        if self.aws.region is not None:
            rule = f"{region!r} is not a known AWS region"
            raise ConfigError.of("region", rule, remedy=hint) from exc
        raise ConfigError(
            f"region {region!r} of stream {self.stream} is not a known AWS region", hint
        ) from exc


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
        past = position.kind is PositionKind.AFTER
        kind = "AFTER_SEQUENCE_NUMBER" if past else "AT_SEQUENCE_NUMBER"
        return {"ShardIteratorType": kind, "StartingSequenceNumber": str(sequence.sequence)}
    if position.is_end:
        raise RequestRefusedError(
            "no shard iterator exists for position SHARD_END, because no record follows this "
            "position"
        )
    return {"ShardIteratorType": "TRIM_HORIZON"}


def _is_unknown_name(exc: vendor.EndpointConnectionError) -> bool:
    """Whether a name server has answered that the host has no address."""
    cause: BaseException | None = exc.kwargs["error"]
    while cause is not None and not isinstance(cause, socket.gaierror):
        cause = cause.__cause__ or cause.__context__
    return cause is not None and cause.errno != socket.EAI_AGAIN
