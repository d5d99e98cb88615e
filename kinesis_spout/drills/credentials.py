"""The connection of a drill to its Kinesis: made-up credentials for one on this machine."""

from __future__ import annotations

from kinesis_spout.config import AwsConfig

REGION = "us-east-1"
MADE_UP = "test"


def aws_of(*, region: str | None, endpoint: str | None, is_local: bool) -> AwsConfig:
    """`is_local`: the endpoint takes any credentials, and those of the environment are not for it.
    Otherwise botocore looks for credentials.
    """
    return AwsConfig(
        region=region,
        endpoint_url=endpoint,
        access_key_id=MADE_UP if is_local else None,
        secret_access_key=MADE_UP if is_local else None,
    )
