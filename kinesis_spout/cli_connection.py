"""How a command that needs no Spark is told the way to Kinesis: its own options, and `--option KEY=VALUE` for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

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
    """The connection from fields, and from `key=value` texts, which win. Raises `ConfigError`, or typer's usage error."""
    texts = {name: text for name, text in named.items() if text is not None}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            # the value may be a secret, and one without its key is not recognised as such
            raise typer.BadParameter("expected key=value", param_hint="--option")
        texts[_field(key.strip())] = value
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
    hint = f"did you mean {nearest}?" if nearest else f"those of a connection are {', '.join(CONNECTION_OPTIONS)}"
    raise ConfigError(f"option {key} is not known here; {hint}", option=key)
