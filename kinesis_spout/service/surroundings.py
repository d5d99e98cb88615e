"""What a process finds around it of the way to the service: a region, and an endpoint.

The region is the one that botocore finds, else `AWS_REGION`, which the other AWS tools read and
botocore does not, else the region of the instance.

Executors on other machines have neither the environment nor the files of the driver, and may not be
allowed to ask for their instance. So the driver sends along what it finds. Credentials are never
part of it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.exceptions as vendor
from botocore.session import Session
from botocore.utils import IMDSRegionProvider

from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.config import AwsConfig, StreamRef

# The variables that decide a profile, a region or an endpoint. None of them holds a secret; an
# endpoint with a password in it stays in this process.
_VARIABLES = (
    "HOME",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_KINESIS",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
)
# The two files that botocore reads profiles from: the variable, and where they are without it.
_FILES = (
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
)
_METADATA = ("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT")
_of_instance: dict[tuple[str | None, ...], str] = {}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The region and the endpoint of Kinesis that a process finds; None for one that it does not.

    Picklable. Holds no secret: an endpoint with a password in it is not taken.
    """

    region: str | None = None
    endpoint_url: str | None = None

    @classmethod
    def of_this_process(cls, aws: AwsConfig, stream: StreamRef | None) -> Surroundings:
        """What botocore finds here: in the environment, and in the files, by the profile of `aws`.
        Where neither these nor `aws` and the stream's ARN name a region, that of the instance.

        Reads files, again only after they or the environment have changed: a query asks for each
        batch, and a botocore session costs 10 ms. Files that cannot be read give nothing here: the
        first call to the service says what is wrong with them. May call the instance's metadata.
        """
        if aws.region is not None and aws.endpoint_url is not None:
            return cls()
        here = _here(aws.profile)
        if here.region or aws.region or (stream is not None and stream.region):
            return here
        try:
            return replace(here, region=region_of_instance(lambda: Session(profile=aws.profile)))
        except (vendor.BotoCoreError, ValueError):
            return here

    def around(self, aws: AwsConfig, stream: StreamRef | None) -> AwsConfig:
        """`aws`, completed. A region that `aws` or the stream's ARN names stays, and so does an
        endpoint of `aws`.
        """
        found = {}
        if aws.region is None and (stream is None or stream.region is None):
            found["region"] = self.region
        if aws.endpoint_url is None:
            found["endpoint_url"] = self.endpoint_url
        for name, value in found.items():
            # A value that is refused stays behind: nobody has given it as an option, and botocore's
            # own error about it names its place.
            with suppress(ConfigError):
                aws = replace(aws, **{name: value})  # type: ignore[arg-type]  # both are texts
        return aws


def for_executors(aws: AwsConfig, stream: StreamRef) -> AwsConfig:
    """`aws` with the region and the endpoint that this process finds for the stream, for processes
    on other machines. As `Surroundings.of_this_process`.
    """
    return Surroundings.of_this_process(aws, stream).around(aws, stream)


def _here(profile: str | None) -> Surroundings:
    variables = tuple(os.environ.get(name) for name in _VARIABLES)
    changed_ns = (_changed_ns(os.environ.get(name, place)) for name, place in _FILES)
    return _found(profile, variables, tuple(changed_ns))


@lru_cache(maxsize=8)
def _found(
    profile: str | None,
    variables: tuple[str | None, ...],  # noqa: ARG001  # the others are a part of the key alone
    changed_ns: tuple[int | None, ...],  # noqa: ARG001
) -> Surroundings:
    session = Session(profile=profile)
    try:
        return Surroundings(region_in(session), endpoint_in(session))
    except (vendor.BotoCoreError, ValueError):
        return Surroundings()


def _changed_ns(file: str) -> int | None:
    try:
        return Path(file).expanduser().stat().st_mtime_ns
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None


def region_in(session: Session) -> str | None:
    """The region that the environment or the files name. Raises botocore's errors."""
    found: str | None = session.get_config_variable("region")
    return found or os.environ.get("AWS_REGION") or None


def place_in_words(aws: AwsConfig, region: str | None) -> str:
    """Where a stream is, for messages: `at` the endpoint of `aws`, or `in` a region, and then `at`
    an endpoint that the environment or the files name. Every call of the service names its place.
    """
    if aws.endpoint_url is not None:
        return f"at {aws.endpoint_url}"
    here = _here(aws.profile)
    place = f"in {region or here.region or 'the default AWS region'}"
    if here.endpoint_url is None or "@" in here.endpoint_url:  # no password is shown
        return place
    return f"{place} at {here.endpoint_url}"


def region_of_instance(new_session: Callable[[], Session]) -> str | None:
    """The region of the EC2 instance that this process runs on, by its metadata; None elsewhere.
    Waits a second for it, or as `AWS_METADATA_SERVICE_TIMEOUT` says. After the first answer it asks
    no more, and makes no session: an instance stays where it is.
    """
    where = tuple(os.environ.get(name) for name in _METADATA)
    if where not in _of_instance:
        found: str | None = IMDSRegionProvider(new_session()).provide()
        if found is None:
            return None
        _of_instance[where] = found
    return _of_instance[where]


def endpoint_in(session: Session) -> str | None:
    """The endpoint that botocore's clients of Kinesis take where they are given none. Its order
    (https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html) is no public call.
    """
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    profile: dict[str, Any] = session.get_scoped_config()
    services = session.full_config.get("services", {}).get(profile.get("services"), {})
    return (
        os.environ.get("AWS_ENDPOINT_URL_KINESIS")
        or os.environ.get("AWS_ENDPOINT_URL")
        or services.get("kinesis", {}).get("endpoint_url")
        or profile.get("endpoint_url")
        or None
    )
