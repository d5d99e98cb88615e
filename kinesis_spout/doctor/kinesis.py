"""What is checked in Kinesis: the endpoint, the credentials, the stream, and each IAM action.

Actions that read are called as a job calls them. GetRecords takes one of a shard's five reads of
one second, and one record. Nothing is written, registered or subscribed to.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesis_spout.clock import SystemClock
from kinesis_spout.doctor.findings import Check, Finding, failed, not_tried, ok, warning
from kinesis_spout.errors import (
    AccessDeniedError,
    ConfigError,
    ConsumerNotFoundError,
    CredentialsError,
    KeyAccessError,
    KinesisError,
    ServiceUnavailableError,
    ShardNotFoundError,
    StreamNotFoundError,
    ThrottledError,
)
from kinesis_spout.inspection.wording import counted, joined
from kinesis_spout.service.consumers import ACTIVE, ConsumerRegistry
from kinesis_spout.service.permissions import PERMISSIONS, READING, Use, action_of
from state.position import TRIM_HORIZON, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinesis_spout.service.client import CredentialsInUse, KinesisClient
    from kinesis_spout.service.shard_info import StreamSummary

SIGNED_FOR_S = 300  # AWS refuses a signature that is older, or from further ahead
WRONG_CLOCK_S = 5  # more than an answer's way and the Date header's whole seconds explain
SOON_S = 3_600
# botocore's names of its providers.
_PROVIDERS = {
    "explicit": "the options",
    "env": "the environment",
    "shared-credentials-file": "the shared credentials file",
    "config-file": "the AWS configuration file",
    "assume-role": "an assumed role",
    "assume-role-with-web-identity": "a web identity",
    "sso": "IAM Identity Center",
    "login": "aws login",
    "custom-process": "the process of the AWS configuration file",
    "container-role": "the container's role",
    "iam-role": "the instance's role",
}
_NEVER_RENEWED = frozenset({"explicit", "env", "shared-credentials-file", "config-file"})
_OF_CONSUMER = {*PERMISSIONS[Use.SUBSCRIBE].all_operations, "list_stream_consumers"}


class Stream:
    """The checks of one stream, in the order of the table: a later one uses what an earlier one
    found. `consumer`: its name or ARN. `described`: the stream, once it was described.
    """

    def __init__(self, client: KinesisClient, consumer: str | None = None) -> None:
        self.client, self.consumer = client, consumer
        self.described: StreamSummary | None = None
        self._refusal: KinesisError | None = None
        self._ahead_s: float | None = None
        self._shard_id = self._iterator = self._registered = ""
        self._has_record = False

    def check_credentials(self) -> Iterator[Finding]:
        """Where they come from, and until when. They are never shown."""
        found = self.client.credentials_in_use()
        yield credentials_finding(found, SystemClock().now_ms())
        if self.client.aws.role_arn is not None:
            yield ok(f"allowed for {self.client.aws.role_arn}", "sts:AssumeRole")

    def check_endpoint(self) -> Finding:
        clock = SystemClock()
        before_ms = clock.now_ms()
        service_ms = self.client.service_time_ms()
        if service_ms is not None:
            # The Date header has whole seconds: half of one is added for that.
            self._ahead_s = ((before_ms + clock.now_ms()) / 2 - service_ms) / 1_000 - 0.5
        return ok(f"Kinesis {self.client.place} answers")

    def check_identity(self) -> Finding:
        """Keeps the stream's description, or why there is none, for the checks after it."""
        began_s = time.monotonic()
        try:
            self.described = self.client.describe()
        except KinesisError as exc:
            if isinstance(exc, CredentialsError | ServiceUnavailableError | ConfigError):
                raise
            self._refusal = exc
        took_ms = (time.monotonic() - began_s) * 1_000
        return ok(f"Kinesis accepts the credentials; a request takes {took_ms:.0f} ms")

    def check_clock(self) -> Finding:
        if self._ahead_s is None:
            return not_tried("the endpoint's responses contain no date")
        off_s = abs(self._ahead_s)
        if off_s <= WRONG_CLOCK_S:
            return ok(f"this machine's clock is within {WRONG_CLOCK_S} s of Kinesis's clock")
        off = f"{off_s / 60:.0f} min" if off_s >= 120 else f"{off_s:.0f} s"
        side = "ahead of" if self._ahead_s > 0 else "behind"
        shown = f"this machine's clock is {off} {side} Kinesis's clock"
        verdict, effect = warning, "this difference makes start times and lags wrong"
        if off_s > SIGNED_FOR_S:
            verdict, effect = failed, "AWS refuses requests whose time is off by more than 5 min"
        return verdict(f"{shown}; {effect}; set this machine's clock")

    def describe(self) -> Finding:
        if self._refusal is None or isinstance(self._refusal, StreamNotFoundError):
            return ok("allowed")
        raise self._refusal

    def check_stream(self) -> Finding:
        if isinstance(self._refusal, StreamNotFoundError):
            advice = "check the stream's name, the region and the account"
            return failed(f"{self.client.where} does not exist; {advice}")
        found = self.described
        if found is None:
            return not_tried("the kinesis:DescribeStreamSummary check did not pass")
        shards = None if found.open_shards is None else counted(found.open_shards, "open shard")
        key = f"encrypted with {found.encryption_key}" if found.encryption_key else "not encrypted"
        kept = f"keeps records for {found.retention_ms / 3_600_000:g} h"
        mode = found.mode and found.mode.lower().replace("_", "-")
        facts = (f"{found.name} {found.status}", mode, shards, kept, key)
        shown = ", ".join(fact for fact in facts if fact)
        if found.status in {"ACTIVE", "UPDATING"}:
            return ok(shown)
        advice = (
            "create the stream again"
            if found.status == "DELETING"
            else "wait until the stream is ACTIVE"
        )
        return failed(f"{shown}; the stream cannot be read; {advice}")

    def list_shards(self) -> Finding:
        shards = self.client.list_shards()
        if not shards:
            return failed(f"{self.client.where} lists no shards; wait until the stream is ACTIVE")
        # an open one, if there is one
        self._shard_id = min(shards, key=lambda shard: shard.is_closed).shard_id
        return ok(f"allowed; {counted(len(shards), 'shard')}, including closed shards")

    def get_iterator(self) -> Finding:
        if not self._shard_id:
            return not_tried("the kinesis:ListShards check did not pass")
        self._iterator = self.client.shard_iterator(self._shard_id, TRIM_HORIZON)
        return ok(f"allowed; checked with {self._shard_id}")

    def get_records(self) -> Finding:
        """From the oldest record on; an empty page is not followed."""
        if not self._iterator:
            return not_tried("the kinesis:GetShardIterator check did not pass")
        self._has_record = self.client.get_records(self._iterator, 1).count > 0
        return ok(f"allowed; checked with {self._shard_id}")

    def check_key(self) -> Finding:
        """Only a record that was read shows that it was decrypted."""
        if self.described is None:
            return not_tried("the kinesis:DescribeStreamSummary check did not pass")
        key = self.described.encryption_key
        if key is None:
            return ok("not needed: the stream is not encrypted")
        if self._has_record:
            return ok(f"allowed on {key}: a record was read")
        return not_tried(f"the stream returned no record; allow kms:Decrypt on {key}")

    def list_consumers(self) -> Finding:
        count = len(ConsumerRegistry(self.client).list())
        return ok(f"allowed; {counted(count, 'consumer')} registered")

    def describe_consumer(self) -> Finding:
        is_arn = str(self.consumer).startswith("arn:")
        wanted = {"arn" if is_arn else "name": self.consumer}
        try:
            found = ConsumerRegistry(self.client).find(**wanted)
        except ConsumerNotFoundError:
            if not is_arn:
                return ok(f"allowed; consumer {self.consumer} is not registered yet")
            others = "list the existing consumers with kinesis-spout consumers list"
            remedy = "or pass --consumer-name: the spout then registers the consumer itself"
            return failed(f"consumer {self.consumer} does not exist; {others}, {remedy}")
        self._registered = found.name
        shown = f"allowed; consumer {found.name} is {found.status}"
        if found.status == ACTIVE:
            return ok(shown)
        return warning(
            f"{shown}; shards are polled until the consumer is ACTIVE; try again in a minute"
        )

    def check_registering(self) -> Finding:
        """Trying it would register a consumer, which is billed."""
        if self._registered:
            return ok(f"not needed: {self._registered} is registered")
        allow = "allow kinesis:RegisterStreamConsumer on the stream"
        other = "register the consumer yourself and pass its ARN"
        return not_tried(f"this check would register consumer {self.consumer}; {allow}, or {other}")

    def check_subscribing(self) -> Finding:
        allow = "allow kinesis:SubscribeToShard on the stream's consumers"
        if not self._registered:
            return not_tried(f"consumer {self.consumer} is not registered; {allow}")
        return not_tried(
            "this check would interrupt a job that reads with consumer "
            f"{self._registered}; {allow}. A running spout has the permission if its metric "
            "kinesis_spout_polled_shards is 0"
        )

    def check_writes(self) -> Iterator[Finding]:
        """Trying them would write. Those of a consumer are tried where one is named."""
        uses = {use.value: PERMISSIONS[use] for use in Use if use is not Use.DRILL}
        called = {name for use in uses.values() for name in use.all_operations}
        key = self.described and self.described.encryption_key
        for name in sorted(called - READING - (_OF_CONSUMER if self.consumer else set())):
            users = joined(use for use, needs in uses.items() if name in needs.all_operations)
            if name == "put_records" and key:
                users += f", with kms:GenerateDataKey on {key}"
            check = "to check enhanced fan-out, pass --read-mode efo and --consumer-name"
            why = check if name in _OF_CONSUMER else "this check would write records"
            yield not_tried(f"needed for {users}; {why}", action_of(name))
        known = {name for use in uses.values() for name in use.operations}
        drill = [name for name in PERMISSIONS[Use.DRILL].all_operations if name not in known]
        actions = ", ".join(map(action_of, drill))
        yield not_tried(
            f"needs {actions}; this check would change streams",
            "drill on AWS",
        )


def tried(
    action: str,
    call: Callable[[Stream], Finding],
    needs: Sequence[str],
    *,
    refused: Callable[[str], Finding] = failed,
    meaning: str = "the credentials are not allowed to call {action} on {stream}",
    remedy: str = "allow {action} in the credentials' IAM policy",
) -> Check[Stream]:
    """The row of an IAM action that is tried. `call` calls it, and reports what it found.

    A refusal is the finding `refused`: what it means, and the remedy. An action that is throttled
    is allowed.
    """

    def look(stream: Stream) -> Finding:
        try:
            return call(stream)
        except ThrottledError as exc:
            return warning(f"allowed, but Kinesis throttled the request: {exc}")
        except ShardNotFoundError:
            return warning("allowed, but the shard has just expired; try again")
        except AccessDeniedError as exc:
            if isinstance(exc, KeyAccessError):
                return refused(str(exc))
            where, consumer = stream.client.where, stream.consumer
            sentence = f"{meaning}; {remedy}"
            return refused(sentence.format(action=action, stream=where, consumer=consumer))

    return Check(action, look, needs)


def credentials_finding(found: CredentialsInUse, now_ms: int) -> Finding:
    """What is known of credentials before the service has seen them."""
    source = f"from {_PROVIDERS.get(found.provider, found.provider)}"
    is_renewed = found.provider not in _NEVER_RENEWED
    if found.expires_ms is None:
        if is_renewed or not found.is_temporary:
            return ok(source)
        advice = "for a job that runs for days, use a role or a profile"
        return warning(f"{source}; these credentials are temporary and are not renewed; {advice}")
    left_s = (found.expires_ms - now_ms) / 1_000
    until = Position.at_timestamp(found.expires_ms)
    if left_s <= 0:
        return failed(f"{source}; the credentials expired at {until}; get new credentials")
    if is_renewed:
        return ok(f"{source}; the credentials are renewed before {until}")
    if left_s < SOON_S:
        return warning(
            f"{source}; the credentials expire in {left_s / 60:.0f} min, at {until}; renew the "
            "credentials"
        )
    return ok(f"{source}; the credentials are valid until {until} and are not renewed")
