"""Reads a table of DynamoDB that another consumer keeps its progress in. Changes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import botocore.exceptions as vendor

from kinesis_spout.errors import (
    AccessDeniedError,
    ConfigError,
    CredentialsError,
    KinesisError,
    RequestRefusedError,
    ServiceUnavailableError,
    ThrottledError,
)
from kinesis_spout.service.botocore_session import code_of, local_error, new_client
from kinesis_spout.service.faults import meaning_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.config import AwsConfig

SCAN = "dynamodb:Scan"
"""The IAM action that `scan_table` needs on the table."""

_MAX_ATTEMPTS = 5
_MISSING = "ResourceNotFoundException"
_ADVICE: dict[type[KinesisError], str] = {
    AccessDeniedError: f"allow {SCAN} on the table for these credentials",
    ThrottledError: "raise the table's read capacity, or run the command again later",
    ServiceUnavailableError: "run the command again later",
    CredentialsError: "check the AWS credentials",
}


def scan_table(
    aws: AwsConfig, table: str, *, region: str | None, endpoint_url: str | None
) -> list[Mapping[str, Mapping[str, Any]]]:
    """All items of a table, as DynamoDB has them (`{"name": {"S": "text"}}`), by consistent reads
    of a page each. Blocks on the network.

    `aws`: for the credentials. Raises `ConfigError` where there is no such table, and other
    `KinesisError`s.
    """
    place = f"at {endpoint_url}" if endpoint_url else f"in {region or 'the default region'}"
    where = f"table {table} {place}"
    try:
        with closing(
            new_client(
                aws, "dynamodb", region=region, endpoint_url=endpoint_url, attempts=_MAX_ATTEMPTS
            )
        ) as client:
            pages = client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
            return [item for page in pages for item in page["Items"]]
    except vendor.ClientError as exc:
        raise _service_error(exc, where) from None
    except (vendor.BotoCoreError, ValueError, KeyError, TypeError) as exc:
        raise local_error(exc, aws, where) from exc


def _service_error(exc: vendor.ClientError, where: str) -> KinesisError:
    """What the service (or STS) answered, without its text where that may quote the request."""
    code, text = code_of(exc), str(exc.response.get("Error", {}).get("Message", ""))[:300]
    if exc.operation_name == "Scan" and code == _MISSING:
        remedy = "check the table's name, region and account"
        return ConfigError(f"{where} does not exist", remedy)
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    kind, advice = meaning_of(code, status, operation=exc.operation_name)
    message = "" if kind is CredentialsError else f": {text}"
    kind = kind if issubclass(kind, tuple(_ADVICE)) else RequestRefusedError
    return kind(f"cannot read {where} ({code}{message})", _ADVICE.get(kind, advice))
