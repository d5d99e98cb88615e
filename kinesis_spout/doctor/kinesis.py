"""Checks of the stream: the way to it, the credentials, and each action that a job makes there.

Reads are tried as a job makes them. GetRecords takes one of a shard's five reads of one second, and
one record. Nothing is written.

With a consumer, the actions of enhanced fan-out are looked at too (`fan_out`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.doctor import fan_out
from kinesis_spout.doctor.checkup import Check
from kinesis_spout.doctor.fan_out import FanOutCheckup, WantedConsumer
from kinesis_spout.doctor.finding import Finding, failed, not_tried, ok, warning
from kinesis_spout.errors import (
    AccessDeniedError,
    ConfigError,
    CredentialsError,
    KinesisError,
    ServiceUnavailableError,
    ShardNotFoundError,
    StreamNotFoundError,
    ThrottledError,
)
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.permissions import (
    ASSUME_ROLE,
    DECRYPT,
    GENERATE_DATA_KEY,
    PERMISSIONS,
    READING,
    Use,
    action_of,
)
from state.position import TRIM_HORIZON, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.config import AwsConfig, StreamRef
    from kinesis_spout.service.botocore_connection import CredentialsInUse
    from kinesis_spout.service.get_records_decoder import DecodedPage
    from kinesis_spout.service.shard_info import StreamSummary

CREDENTIALS, ENDPOINT, IDENTITY, CLOCK = "credentials", "endpoint", "identity", "clock"
STREAM = "stream"
SIGNED_FOR_S = 300  # AWS refuses a signature that is older, or from further ahead
WRONG_CLOCK_S = 5  # more than an answer's way and the Date header's whole seconds explain
SOON_S = 3_600
RETRY_FOR_S = 4.0
_READABLE = frozenset({"ACTIVE", "UPDATING"})
# botocore's names of its providers.
_PROVIDERS = {
    "explicit": "the options",
    "env": "the environment",
    "shared-credentials-file": "the shared credentials file",
    "config-file": "the AWS configuration file",
    "assume-role": "the role that they assume",
    "assume-role-with-web-identity": "a web identity",
    "sso": "IAM Identity Center",
    "login": "aws login",
    "custom-process": "the process of the AWS configuration file",
    "container-role": "the container's role",
    "iam-role": "the instance's role",
}
_NEVER_RENEWED = frozenset({"explicit", "env", "shared-credentials-file", "config-file"})
_DESCRIBE = action_of("describe_stream_summary")
_LIST = action_of("list_shards")
_ITERATOR = action_of("get_shard_iterator")
_GET = action_of("get_records")


@dataclass(slots=True)
class KinesisCheckup:
    """The checks of one stream, in their order. A later one uses what an earlier one has learnt."""

    aws: AwsConfig
    stream: StreamRef
    clock: Clock = field(default_factory=SystemClock)
    consumer: WantedConsumer | None = None
    _client: KinesisClient = field(init=False, repr=False)
    _offset_s: float | None = field(init=False, default=None)
    _described: StreamSummary | KinesisError | None = field(init=False, default=None)
    _shard_id: str = field(init=False, default="")
    _iterator: str = field(init=False, default="", repr=False)
    _page: DecodedPage | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self._client = KinesisClient(
            self.aws,
            self.stream,
            clock=self.clock,
            retry_for_s=RETRY_FOR_S,
        )

    def close(self) -> None:
        self._client.close()

    def checks(self) -> list[Check]:
        """All of them: the driver's."""
        return [
            *self.way_checks(),
            Check(name=CLOCK, look=self.look_at_clock, needs=[ENDPOINT]),
            Check(name=_DESCRIBE, look=self.look_at_description, needs=[IDENTITY]),
            Check(name=STREAM, look=self.look_at_stream, needs=[IDENTITY]),
            Check(name=_LIST, look=self.list_shards, needs=[IDENTITY, STREAM]),
            Check(name=_ITERATOR, look=self.get_iterator, needs=[_LIST]),
            Check(name=_GET, look=self.get_records, needs=[_ITERATOR]),
            Check(name=DECRYPT, look=self.look_at_key, needs=[STREAM]),
            *self._fan_out_checks(),
            Check(name="writing", look=self.name_writes),
        ]

    def way_checks(self) -> list[Check]:
        """Whether the service can be reached and takes the credentials: also of executors."""
        return [
            Check(name=CREDENTIALS, look=self.look_at_credentials),
            Check(name=ENDPOINT, look=self.look_at_endpoint, needs=[CREDENTIALS]),
            Check(name=IDENTITY, look=self.look_at_identity, needs=[ENDPOINT]),
        ]

    def look_at_credentials(self) -> Iterator[Finding]:
        """Where they come from, and until when. They are never shown."""
        found = self._client.connection.credentials_in_use()
        yield credentials_finding(found, self.clock.now_ms())
        if self.aws.role_arn is not None:
            yield ok(action_of(ASSUME_ROLE), f"allowed for {self.aws.role_arn}")

    def look_at_endpoint(self) -> Iterator[Finding]:
        before_ms = self.clock.now_ms()
        service_ms = self._client.connection.service_time_ms()
        if service_ms is not None:
            local_ms = (before_ms + self.clock.now_ms()) / 2
            self._offset_s = (local_ms - service_ms) / 1_000
        yield ok(ENDPOINT, f"Kinesis {self._client.connection.place} answers")

    def look_at_clock(self) -> Iterator[Finding]:
        """The Date header of an answer has whole seconds: half of one is added for that."""
        if self._offset_s is None:
            yield not_tried(CLOCK, "the endpoint's answers have no date")
            return
        yield clock_finding(self._offset_s - 0.5)

    def look_at_identity(self) -> Iterator[Finding]:
        """Keeps the stream's description, or why there is none, for the checks after it."""
        began_s = time.monotonic()
        try:
            self._described = self._client.describe()
        except (CredentialsError, ServiceUnavailableError, ConfigError):
            raise
        except KinesisError as exc:
            self._described = exc
        took_ms = (time.monotonic() - began_s) * 1_000
        yield ok(IDENTITY, f"the service accepts the credentials; a call takes {took_ms:.0f} ms")

    def look_at_description(self) -> Iterator[Finding]:
        if isinstance(self._described, KinesisError) and not isinstance(
            self._described, StreamNotFoundError
        ):
            yield self._refused("describe_stream_summary", self._described)
        else:
            yield ok(_DESCRIBE, "allowed")

    def look_at_stream(self) -> Iterator[Finding]:
        described = self._described
        if isinstance(described, StreamNotFoundError):
            yield failed(
                STREAM,
                f"{self._client.where} does not exist; check its name, the region and the account",
            )
        elif described is None or isinstance(described, KinesisError):
            yield not_tried(STREAM, f"it needs {_DESCRIBE}")
        else:
            yield stream_finding(described)

    def list_shards(self) -> Iterator[Finding]:
        try:
            shards = self._client.list_shards()
        except (AccessDeniedError, ThrottledError) as exc:
            yield self._refused("list_shards", exc)
            return
        readable = [one for one in shards if not one.is_closed] or list(shards)
        if not readable:
            yield failed(_LIST, f"{self._client.where} lists no shards; wait until it is ACTIVE")
            return
        self._shard_id = readable[0].shard_id
        yield ok(_LIST, f"allowed; {_counted(len(shards), 'shard')}, closed ones included")

    def get_iterator(self) -> Iterator[Finding]:
        fetch = partial(self._client.shard_iterator, self._shard_id, TRIM_HORIZON)
        yield self._read("get_shard_iterator", fetch, self._keep_iterator)

    def get_records(self) -> Iterator[Finding]:
        """From the oldest record on; where that says nothing, it is not looked for."""
        fetch = partial(self._client.get_records, self._iterator, 1)
        yield self._read("get_records", fetch, self._keep_page)

    def look_at_key(self) -> Iterator[Finding]:
        """Only a record that was read shows that it was decrypted."""
        described = self._described
        if described is None or isinstance(described, KinesisError):
            yield not_tried(DECRYPT, f"it needs {_DESCRIBE}")
        elif described.encryption_key is None:
            yield ok(DECRYPT, "not needed: the stream is not encrypted")
        elif self._page is not None and self._page.count:
            yield ok(DECRYPT, f"allowed on {described.encryption_key}: a record was read")
        else:
            yield not_tried(
                DECRYPT,
                f"no record came that is encrypted with {described.encryption_key}; allow "
                f"{DECRYPT} on it",
            )

    def name_writes(self) -> Iterator[Finding]:
        """Trying them would write. Those of a consumer are tried where one is named."""
        uses = [use for use in Use if use is not Use.DRILL]
        looked_at = READING if self.consumer is None else READING | fan_out.OPERATIONS
        for operation in sorted({one for use in uses for one in PERMISSIONS[use].all_operations}):
            if operation not in looked_at:
                named = [use for use in uses if operation in PERMISSIONS[use].all_operations]
                needed = f"needed for {_joined([use.value for use in named])}"
                yield not_tried(
                    action_of(operation),
                    f"{needed}; give --read-mode efo and --consumer-name to look at it"
                    if operation in fan_out.OPERATIONS
                    else f"it would write; {needed}" + self._key_too(operation),
                )
        drill = [
            one.removeprefix("kinesis:")
            for one in map(action_of, PERMISSIONS[Use.DRILL].all_operations)
            if one not in {action_of(name) for use in uses for name in PERMISSIONS[use].operations}
        ]
        yield not_tried(
            "drill on AWS", f"it would change streams; it needs kinesis: {_joined(drill)}"
        )

    @property
    def described(self) -> StreamSummary | None:
        """The stream, once it was described."""
        return None if isinstance(self._described, KinesisError) else self._described

    def _fan_out_checks(self) -> list[Check]:
        if self.consumer is None:
            return []
        return FanOutCheckup(self._client, self.consumer).checks([STREAM])

    def _key_too(self, operation: str) -> str:
        """Only records are encrypted."""
        described = self._described
        if operation != "put_records":
            return ""
        if described is None or isinstance(described, KinesisError):
            return ""
        key = described.encryption_key
        return "" if key is None else f", with {GENERATE_DATA_KEY} on {key}"

    def _keep_iterator(self, iterator: str) -> None:
        self._iterator = iterator

    def _keep_page(self, page: DecodedPage) -> None:
        self._page = page

    def _read(
        self, operation: str, fetch: Callable[[], object], keep: Callable[..., None]
    ) -> Finding:
        action = action_of(operation)
        try:
            keep(fetch())
        except ShardNotFoundError:
            return warning(action, f"allowed, but {self._shard_id} is gone by now; try again")
        except (AccessDeniedError, ThrottledError) as exc:
            return self._refused(operation, exc)
        return ok(action, f"allowed; tried on {self._shard_id}")

    def _refused(self, operation: str, exc: KinesisError) -> Finding:
        """An action that is denied fails. One that is throttled is allowed."""
        action = action_of(operation)
        if isinstance(exc, ThrottledError):
            return warning(action, f"allowed, but throttled: {exc}")
        if isinstance(exc, AccessDeniedError) and "(KMS" not in str(exc):
            return failed(
                action,
                f"the credentials may not call it on {self._client.where}; allow {action} in "
                "their IAM policy",
            )
        return failed(action, str(exc))


def credentials_finding(found: CredentialsInUse, now_ms: int) -> Finding:
    """What is said of credentials that were found, before the service has seen them."""
    said = f"from {_PROVIDERS.get(found.provider, found.provider)}"
    renewed = found.provider not in _NEVER_RENEWED
    if found.expires_ms is None:
        if found.is_temporary and not renewed:
            return warning(
                CREDENTIALS,
                f"{said}, temporary, and nothing renews them; for a job that runs for days use a "
                "role or a profile",
            )
        return ok(CREDENTIALS, said)
    left_s = (found.expires_ms - now_ms) / 1_000
    until = Position.at_timestamp(found.expires_ms)
    if left_s <= 0:
        return failed(CREDENTIALS, f"{said}, expired at {until}; get new ones")
    if renewed:
        return ok(CREDENTIALS, f"{said}, until {until}, then renewed")
    if left_s < SOON_S:
        return warning(
            CREDENTIALS, f"{said}, expire in {left_s / 60:.0f} min, at {until}; get new ones"
        )
    return ok(CREDENTIALS, f"{said}, until {until}; nothing renews them")


def clock_finding(ahead_s: float) -> Finding:
    """`ahead_s`: how far this machine's clock is ahead of the service's."""
    off_s = abs(ahead_s)
    side = "ahead of" if ahead_s > 0 else "behind"
    if off_s <= WRONG_CLOCK_S:
        return ok(CLOCK, "as the service's, to the seconds that it shows")
    said = f"this machine's clock is {_duration(off_s)} {side} the service's"
    if off_s > SIGNED_FOR_S:
        return failed(
            CLOCK, f"{said}; AWS refuses requests that are off by more than 5 min; set the clock"
        )
    return warning(CLOCK, f"{said}; starts at a time and lags are off by as much; set the clock")


def stream_finding(summary: StreamSummary) -> Finding:
    said = ", ".join(
        one
        for one in (
            f"{summary.name} {summary.status}",
            "" if summary.mode is None else summary.mode.lower().replace("_", "-"),
            "" if summary.open_shards is None else _counted(summary.open_shards, "open shard"),
            f"keeps records for {summary.retention_ms / 3_600_000:g} h",
            "not encrypted"
            if summary.encryption_key is None
            else f"encrypted with {summary.encryption_key}",
        )
        if one
    )
    if summary.status not in _READABLE:
        advice = "create it again" if summary.status == "DELETING" else "wait until it is ACTIVE"
        return failed(STREAM, f"{said}: it cannot be read; {advice}")
    return ok(STREAM, said)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def _joined(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
