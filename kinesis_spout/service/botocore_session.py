"""Sessions and clients of botocore, which finds credentials and renews them; and what its own
errors mean.
"""

from __future__ import annotations

import logging
import os
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import botocore.exceptions as vendor
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.loaders import create_loader
from botocore.session import Session

from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.service.faults import meaning_of_local
from kinesis_spout.service.surroundings import region_in, region_of_instance

if TYPE_CHECKING:
    from kinesis_spout.config import AwsConfig

# At DEBUG botocore logs whole requests and answers: session tokens, the keys of a role. It does so
# where somebody sets its own level, not because the root logger has that one.
_vendor_log = logging.getLogger("botocore")
if _vendor_log.level == logging.NOTSET:
    _vendor_log.setLevel(logging.WARNING)  # the root logger's level by default

_SETTINGS = Config(connect_timeout=5, read_timeout=30, user_agent_extra="kinesis-spout")


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


def new_client(
    aws: AwsConfig,
    service: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    attempts: int,
    **settings: Any,
) -> Any:
    """A client of a service of AWS, as `new_session`. `attempts`: how often botocore makes a call,
    the first time included.
    """
    config = Config(retries={"mode": "standard", "total_max_attempts": attempts}, **settings)
    config = _SETTINGS.merge(config)
    return new_session(aws, region).create_client(service, endpoint_url=endpoint_url, config=config)


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
    once = _SETTINGS.merge(Config(retries={"mode": "standard", "total_max_attempts": 1}))
    sts = partial(source.create_client, config=once)
    fetcher = AssumeRoleCredentialFetcher(sts, source_credentials, role_arn, extra_args=extra)
    session = Session(profile=aws.profile)
    credentials = DeferredRefreshableCredentials(
        refresh_using=fetcher.fetch_credentials, method="assume-role"
    )
    # In the place of botocore's chain of providers, of which it calls nothing else.
    provider = SimpleNamespace(load_credentials=lambda: credentials)
    session.register_component("credential_provider", provider)
    return session


def code_of(exc: vendor.ClientError) -> str:
    """The service's code of an error that it answered with."""
    return str(exc.response.get("Error", {}).get("Code", ""))


def local_error(exc: Exception, aws: AwsConfig, where: str) -> KinesisError:
    """Our error for an exception of botocore's own, raised without an answer of the service."""
    if isinstance(exc, vendor.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(exc):
        return ConfigError(
            f"the TLS certificate for {where} is not trusted",
            "check the endpoint, or set AWS_CA_BUNDLE to a file with the authority's certificate",
        )
    kind, message, remedy = meaning_of_local(type(exc))
    facts = {"where": where, "peer": _peer(exc, where), "profile": _profile(exc, aws)}
    text = " ".join(str(exc).split())[:300]
    return kind(message.format(kind=type(exc).__name__, text=text, **facts), remedy)


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
