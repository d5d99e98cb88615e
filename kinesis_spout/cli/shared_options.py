"""How a command that needs no Spark is told the way to Kinesis: its own options, and `--option
KEY=VALUE` for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from kinesis_spout.config import AwsConfig, nearest_name
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Names as readers of a stream spell them -> fields of AwsConfig.
CONNECTION_OPTIONS = {
    "region": "region",
    "endpointUrl": "endpoint_url",
    "profile": "profile",
    "awsAccessKeyId": "access_key_id",
    "awsSecretAccessKey": "secret_access_key",
    "awsSessionToken": "session_token",
    "roleArn": "role_arn",
    "roleExternalId": "role_external_id",
    "roleSessionName": "role_session_name",
}


def connection_of(named: Mapping[str, str | None], pairs: Sequence[str]) -> AwsConfig:
    """The connection from fields, and from `key=value` texts, which win. Raises `ConfigError`, or
    typer's usage error.
    """
    texts = {name: text for name, text in named.items() if text is not None}
    return aws_config(
        texts | {_field(key): value for key, value in parse_pairs("--option", pairs).items()}
    )


def parse_pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` texts as a mapping; raises typer's usage error naming `option`."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # the value may be a secret, and one without its key is not recognised as such
            raise typer.BadParameter("expected key=value", param_hint=option)
        found[key.strip()] = value
    return found


def aws_config(texts: Mapping[str, str]) -> AwsConfig:
    """The connection from texts by field; raises `ConfigError` in the spelling of options."""
    try:
        return AwsConfig(**texts)
    except ConfigError as exc:
        spelt = {field: name for name, field in CONNECTION_OPTIONS.items()}
        raise exc.respelt(spelt[exc.option]) if exc.option in spelt else exc from None


def _field(key: str) -> str:
    by_key = {name.lower(): field for name, field in CONNECTION_OPTIONS.items()}
    if key.lower() in by_key:
        return by_key[key.lower()]
    nearest = nearest_name(key, CONNECTION_OPTIONS)
    hint = (
        f"did you mean {nearest}?"
        if nearest
        else f"those of a connection are {', '.join(CONNECTION_OPTIONS)}"
    )
    raise ConfigError(f"option {key} is not known here; {hint}", option=key)


@dataclass(slots=True)
class RootOptions:
    """Options that stand before the command's name."""

    debug: bool = False


def root_options(ctx: typer.Context) -> RootOptions:
    """The options before the command's name; the defaults where a command is run without
    `kinesis-spout` around it.
    """
    root = ctx.find_root()
    if not isinstance(root.obj, RootOptions):
        root.obj = RootOptions()
    return root.obj


def errors() -> Console:
    """The console on stderr."""
    return Console(stderr=True)
