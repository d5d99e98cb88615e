"""The connection to Kinesis through botocore: the module that knows the vendor's client, its
credentials and its exceptions.

botocore finds credentials, signs and sends. It does not retry: `KinesisConnection.retry` does, so
that retries are not nested in two layers. Its serializer and its parser never see a record
(`direct_calls`).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import botocore.exceptions as vendor
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError
from botocore.session import Session
from tenacity import RetryCallState, Retrying, retry_if_exception

from kinesis_spout.backoff import Backoff
from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import AwsConfig, StreamRef, nearest_name
from kinesis_spout.errors import (
    ConfigError,
    CredentialsError,
    ExpiredIteratorError,
    KinesisError,
    MalformedResponseError,
    RequestRefusedError,
    ShardNotFoundError,
    StaleCredentialsError,
    StreamNotFoundError,
    ThrottledError,
    UnreadableRecordError,
)
from kinesis_spout.service.faults import (
    EXPIRED_LISTING,
    REFUSED_CREDENTIALS,
    meaning_of,
    meaning_of_local,
)
from kinesis_spout.service.shard_info import StreamSummary, keep_summary_body, service_time_ms
from kinesis_spout.service.surroundings import (
    endpoint_in,
    place_in_words,
    region_in,
    region_of_instance,
)
from kinesis_spout.service.wire import GetRecordsWire, direct_puts, direct_subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

# At DEBUG botocore logs whole requests and answers: session tokens, the keys of a role. It does so
# where somebody sets its own level, not because the root logger has that one.
_vendor_log = logging.getLogger("botocore")
if _vendor_log.level == logging.NOTSET:
    _vendor_log.setLevel(logging.INFO)

_SYSTEM_CLOCK = SystemClock()
_ONE_ATTEMPT = Config(
    retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=30
)
_KINESIS_SETTINGS = _ONE_ATTEMPT.merge(
    Config(max_pool_connections=64, tcp_keepalive=True, user_agent_extra="kinesis-spout")
)
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


class ExpiredListingError(KinesisError):
    """The page token of a listing has expired. The listing can only be requested again from its
    start.
    """


class KinesisConnection:
    """Calls operations of the service on one stream. `KinesisClient` also reads, and `RecordPutter`
    puts by it.

    Methods block on the network, may be called from many threads, and raise `KinesisError`.
    Transient faults are retried for `retry_for_s` seconds; other errors are raised at once. The
    constructor only keeps its arguments, and a pickle holds nothing else: each process opens its
    own connection.

    Once the service has answered, credentials that it refuses, or that are not found any more, are
    transient: they are looked up again at each attempt, as somebody may be replacing them.
    `answered_before`: it has answered another process of this job. `as_lists`: pages are for a
    caller that reads record by record, so their columns are lists where that costs less than Arrow.
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
        # Once a client was made: the region that it uses, whoever named that, and its place.
        self._region = stream.region_or(aws.region)
        self._place: str | None = None
        self._answered_before = answered_before
        self._was_answered = False
        self.clock = clock
        self._retry_for_s = retry_for_s
        self.random = random or Random()  # noqa: S311  # jitter, not a secret
        self._built: tuple[int, Any] | None = None
        self._as_lists = as_lists
        self.wire = GetRecordsWire(aws.wire_format, clock=clock, as_lists=as_lists)

    def __reduce__(self) -> tuple[Callable[..., KinesisConnection], tuple[AwsConfig, StreamRef]]:
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
        # A forked child has its parent's client, whose sockets the parent goes on using.
        if built is not None and built[0] == os.getpid():
            built[1].close()

    def stream_argument(self) -> dict[str, Any]:
        """The argument that names the stream: by ARN, if that is how it was configured."""
        return (
            {"StreamARN": self.stream.arn}
            if self.stream.arn is not None
            else {"StreamName": self.stream.name}
        )

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
                    f"the answer to {operation} for {self.where} is incomplete",
                    "check the endpoint",
                ) from exc

        return self.retry(attempt) if retry else attempt()

    def retry(self, call: Callable[[], _T], *, retry_throttled: bool = True) -> _T:
        """Run `call` until it succeeds. Raises its error when that is not transient, and its last
        error when no attempt can begin within `retry_for_s` seconds of the first.

        Attempts are not counted: with jitter, a number of them may be used up in the first seconds
        of an outage that ends soon.
        """
        clock, begun_s = self.clock, self.clock.monotonic_s()
        try:
            return call()  # nearly every call; making a Retrying costs more than all else in it
        except KinesisError as exc:
            failed = [exc]

        def call_again() -> _T:
            if failed:  # the attempt above is tenacity's first
                raise failed.pop()
            return call()

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
        return retrying(call_again)

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
                client = self._vendor_client()
                answer: dict[str, Any] = getattr(client, operation)(**arguments)
            except vendor.ClientError as exc:
                if not (may_be_old and _code(exc) in REFUSED_CREDENTIALS):
                    self._raise_service_error(exc, about)
            except _LOCAL_FAULTS as exc:
                if isinstance(self._local_error(exc), CredentialsError):
                    self._drop(client)
                self._raise_local_error(exc)
            else:
                self._was_answered = True
                return answer
            self._drop(client)
            may_be_old = False

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
        try:
            answer = self._vendor_client().describe_stream_summary(**self.stream_argument())
        except vendor.ClientError as exc:
            if exc.operation_name in _GIVE_CREDENTIALS:
                self._raise_service_error(exc, None)
            answer = exc.response
        except _LOCAL_FAULTS as exc:
            self._raise_local_error(exc)
        return service_time_ms(answer)

    def credentials_in_use(self) -> CredentialsInUse:
        """Where the credentials come from, and until when they are valid. Calls STS when a role is
        to be assumed. Raises `CredentialsError`.
        """
        try:
            with _building:
                session = new_session(self.aws, self._region)
            credentials = session.get_credentials()
            if credentials is None:
                raise vendor.NoCredentialsError
            frozen = credentials.get_frozen_credentials()
        except vendor.ClientError as exc:
            self._raise_service_error(exc, None)
        except _LOCAL_FAULTS as exc:
            self._raise_local_error(exc)
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
                session = new_session(self.aws, self._region)
                client = session.create_client(
                    "kinesis", endpoint_url=self.aws.endpoint_url, config=_KINESIS_SETTINGS
                )
                self._region = session.get_config_variable("region")
                self._place = place_in_words(self.aws, self._region)
                self.wire.hook(client, self.where)
                direct_puts(client)
                client.meta.events.register(
                    "before-parse.kinesis.DescribeStreamSummary", keep_summary_body
                )
                direct_subscriptions(client, self.clock)
                built = self._built = (os.getpid(), client)
            return built[1]

    def _raise_service_error(self, exc: vendor.ClientError, about: str | None) -> NoReturn:
        """Translate an error that the service (or STS) answered with."""
        code = _code(exc)
        if code == EXPIRED_LISTING:
            raise ExpiredListingError(
                f"the page token of the shard listing of {self.where} has expired"
            ) from exc
        status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        kind, advice = meaning_of(code, status, operation=exc.operation_name)
        if kind is RequestRefusedError and exc.operation_name in _GIVE_CREDENTIALS:
            kind = CredentialsError
        where = f"{about} of {self.where}" if about else self.where
        if kind is CredentialsError and (self._was_answered or self._answered_before):
            kind = StaleCredentialsError
            advice = f"{advice}, and put new credentials where the job reads them"
        if exc.operation_name in _GIVE_CREDENTIALS:
            role = f"role {self.aws.role_arn}" if self.aws.role_arn else "the profile's role"
            raise kind(f"{role} cannot be assumed for {self.where} ({code})", advice) from None
        if issubclass(kind, CredentialsError):
            # The service's message may quote the request with its signed headers, so it is neither
            # shown nor chained.
            raise kind(
                f"the service refuses the credentials for {where} ({code})", advice
            ) from None
        if kind is StreamNotFoundError and about is not None:
            # The service has one code for a missing shard and a missing stream. To describe the
            # stream raises when that is missing.
            self.call("describe_stream_summary", self.stream_argument(), StreamSummary.of)
            raise ShardNotFoundError(
                f"{where} does not exist: it has expired, or belongs to another stream"
            ) from exc
        if kind is RequestRefusedError and exc.operation_name == "GetRecords":
            kind = ExpiredIteratorError  # the iterator is the only argument that can be wrong here
        message = str(exc.response.get("Error", {}).get("Message", "")).splitlines()[:1]
        raise kind(
            f"{exc.operation_name} failed for {where} "
            f"({code}{': ' + message[0][:300] if message else ''})",
            advice,
        ) from exc

    def _raise_local_error(self, exc: Exception) -> NoReturn:
        """Translate an error of botocore's own, raised without an answer of the service."""
        if isinstance(exc, KinesisError):  # our own, which may be a ValueError
            raise exc
        if isinstance(exc, vendor.EndpointConnectionError) and not (
            self._was_answered or self._answered_before
        ):
            self._check_region_is_known(exc)
        raise self._local_error(exc) from exc

    def _local_error(self, exc: Exception) -> KinesisError:
        error = local_error(exc, self.aws, self.where)
        is_missing = isinstance(exc, _NOT_FOUND)
        may_come = self._was_answered or (self._answered_before and not is_missing)
        if may_come and (is_missing or isinstance(error, CredentialsError)):
            return StaleCredentialsError(str(error))
        return error

    def _check_region_is_known(self, exc: vendor.EndpointConnectionError) -> None:
        """Raise `ConfigError` where the host that is made of the region has no address, and no
        partition lists the region: a retry cannot help. The failure of a host that the
        configuration names is an outage, and so is that of a name server. An unlisted region may be
        reachable, so this is called only after a failed connection.
        """
        session = Session(profile=self.aws.profile)
        host = _host(exc.kwargs["endpoint_url"])
        configured = self.aws.endpoint_url or endpoint_in(session)
        if self._region is None or self._region not in host or not _is_unknown_name(exc):
            return
        if configured is not None and host == _host(configured):
            return
        known = [
            name
            for part in session.get_available_partitions()
            for name in session.get_available_regions("kinesis", part)
        ]
        if self._region in known:
            return
        nearest = nearest_name(self._region, known)
        rule = "is not a region that can be reached"
        hint = f"did you mean {nearest}?" if nearest else ""
        if self.aws.region is not None:
            raise ConfigError.of("region", rule, self._region, remedy=hint) from exc
        raise ConfigError(f"region {self._region!r} of stream {self.stream} {rule}", hint) from exc


def new_session(aws: AwsConfig, region: str | None) -> Session:
    """A session of botocore with these credentials, for `region` or the one that is found here.
    Reads files, and may call the instance's metadata. Raises botocore's errors.
    """
    session = Session(profile=aws.profile)
    region = region or region_in(session) or region_of_instance(lambda: session)
    session.set_config_variable("region", region)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    if aws.access_key_id is not None and aws.secret_access_key is not None:
        session.set_credentials(aws.access_key_id, aws.secret_access_key, aws.session_token)
    if aws.role_arn is not None:
        session = _session_of_role(session, aws, aws.role_arn)
        session.set_config_variable("region", region)
    return session


@cache
def _loader(data_path: str | None) -> Any:
    """The descriptions of services, read once in a process: that takes a tenth of a second."""
    loader = create_loader(data_path)

    def folders(_type_name: str) -> list[str]:
        return [
            entry.name
            for path in filter(os.path.isdir, loader.search_paths)
            for entry in os.scandir(path)
        ]

    # To see whether a service is one, botocore looks for its files in the folders of all 400.
    loader.list_available_services = folders
    return loader


def _session_of_role(source: Session, aws: AwsConfig, role_arn: str) -> Session:
    """A session with the role's credentials. It assumes the role again before they expire."""
    source_credentials = source.get_credentials()
    if source_credentials is None:
        raise vendor.NoCredentialsError
    extra = {"RoleSessionName": aws.role_session_name}
    if aws.role_external_id is not None:
        extra["ExternalId"] = aws.role_external_id
    sts = partial(source.create_client, config=_ONE_ATTEMPT)
    fetcher = AssumeRoleCredentialFetcher(sts, source_credentials, role_arn, extra_args=extra)
    session = Session(profile=aws.profile)
    credentials = DeferredRefreshableCredentials(
        refresh_using=fetcher.fetch_credentials, method="assume-role"
    )
    # In the place of botocore's chain of providers, of which it calls nothing else.
    provider = SimpleNamespace(load_credentials=lambda: credentials)
    session.register_component("credential_provider", provider)
    return session


def local_error(exc: Exception, aws: AwsConfig, where: str) -> KinesisError:
    """Our error for an exception of botocore's own, raised without an answer of the service."""
    if isinstance(exc, vendor.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(exc):
        return ConfigError(
            f"the TLS certificate for {where} is not trusted",
            "set AWS_CA_BUNDLE, or check the endpoint",
        )
    kind, message, remedy = meaning_of_local(type(exc))
    text = " ".join(str(exc).split())[:300]
    return kind(
        message.format(
            where=where,
            peer=_peer(exc, where),
            profile=_profile(exc, aws),
            kind=type(exc).__name__,
            text=text,
        ),
        remedy,
    )


def _peer(exc: Exception, where: str) -> str:
    """Who did not answer, for messages: STS, a proxy or the metadata of an instance are other hosts
    than the endpoint in `where`.
    """
    facts = exc.kwargs if isinstance(exc, vendor.BotoCoreError) else {}
    if facts.get("proxy_url"):
        return f"the proxy {facts['proxy_url']}"  # botocore has masked its password
    parts = urlsplit(str(facts.get("endpoint_url", "")))
    url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return url if parts.hostname and url not in where else "the service"


def _profile(exc: Exception, aws: AwsConfig) -> str:
    """The profile that was not found, and the variable that names it, for messages."""
    name = str(exc.kwargs["profile"]) if isinstance(exc, vendor.ProfileNotFound) else aws.profile
    variables = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE") if aws.profile is None else ()
    named_by = next((f" of {one}" for one in variables if os.environ.get(one) == name), "")
    return f"profile {name}{named_by}"


def _code(exc: vendor.ClientError) -> str:
    return str(exc.response.get("Error", {}).get("Code", ""))


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _is_unknown_name(exc: vendor.EndpointConnectionError) -> bool:
    """Whether a name server has answered that the host has no address."""
    cause: BaseException | None = exc.kwargs["error"]
    while cause is not None and not isinstance(cause, socket.gaierror):
        cause = cause.__cause__ or cause.__context__
    return cause is not None and cause.errno != socket.EAI_AGAIN
