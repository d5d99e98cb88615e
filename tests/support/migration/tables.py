"""Tables of DynamoDB in moto, with what other consumers keep there."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import boto3

from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LEASE_KEYS = ("leaseKey",)
METADATA_KEYS = ("metadataKey", "metadataSortKey")


def make_table(
    endpoint_url: str,
    name: str,
    items: Iterable[Mapping[str, Any]],
    keys: tuple[str, ...] = LEASE_KEYS,
) -> None:
    client = boto3.client(
        "dynamodb",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
    with closing(client):
        client.create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": key, "KeyType": kind}
                for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        for item in items:
            client.put_item(TableName=name, Item=dict(item))
