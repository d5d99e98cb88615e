"""Executors get the surroundings of the driver: what botocore finds there."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from botocore.session import Session

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.service.surroundings import for_executors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ORDERS = StreamRef("orders")
ARN = StreamRef.parse(arn="arn:aws:kinesis:ap-south-1:123456789012:stream/orders")
FILE = """\
[default]
region = eu-north-1
[profile work]
region = sa-east-1
endpoint_url = http://profile.test:1
[profile both]
region = sa-east-1
endpoint_url = http://profile.test:1
services = local
[services local]
kinesis =
  endpoint_url = http://service.test:2
s3 =
  endpoint_url = http://s3.test:3
[profile ignoring]
region = us-west-2
endpoint_url = http://profile.test:1
ignore_configured_endpoint_urls = true
"""
KINESIS = {"AWS_ENDPOINT_URL_KINESIS": "http://kinesis.test:4"}
GLOBAL = {"AWS_ENDPOINT_URL": "http://global.test:5"}
S3 = {"AWS_ENDPOINT_URL_S3": "http://s3.test:6"}
REGION = {"AWS_DEFAULT_REGION": "us-east-2"}


@pytest.fixture
def set_environment(
    no_aws_environment: Callable[[str, str], None], tmp_path: Path
) -> Callable[[str, str], None]:
    """A setter for the test's own environment, with the file of profiles."""
    file = tmp_path / "config"
    file.write_text(FILE)
    no_aws_environment("AWS_CONFIG_FILE", str(file))
    return no_aws_environment


@pytest.mark.parametrize("profile", [None, "work", "both", "ignoring"])
@pytest.mark.parametrize(
    "variables",
    [{}, REGION, KINESIS, GLOBAL, S3, KINESIS | GLOBAL | REGION, {"AWS_PROFILE": "both"}],
)
def test_executors_get_what_botocore_finds(
    set_environment: Callable[[str, str], None], profile: str | None, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        set_environment(name, value)
    client = Session(profile=profile).create_client(
        "kinesis", aws_access_key_id="a", aws_secret_access_key="b"
    )
    found = for_executors(AwsConfig(profile=profile), ORDERS)
    assert found.region == client.meta.region_name
    standard = f"https://kinesis.{found.region}.amazonaws.com"
    assert (found.endpoint_url or standard) == client.meta.endpoint_url


def test_what_options_or_the_arn_say_stays(
    set_environment: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Where nothing is found nothing is sent, and a changed file is read again."""
    assert for_executors(AwsConfig(), ORDERS).region == "eu-north-1"
    (tmp_path / "config").write_text("")
    assert for_executors(AwsConfig(), ORDERS) == AwsConfig()
    lost = AwsConfig(profile="lost")  # the first call says so
    assert for_executors(lost, ORDERS) == lost
    for name, value in (KINESIS | REGION).items():
        set_environment(name, value)
    given = AwsConfig(region="eu-west-1", endpoint_url="http://given.test:7")
    assert for_executors(given, ORDERS) == given
    assert for_executors(AwsConfig(), ARN).region is None


def test_no_secret_is_sent(set_environment: Callable[[str, str], None]) -> None:
    """Neither credentials of the environment, nor an endpoint that holds some."""
    set_environment("AWS_ACCESS_KEY_ID", "marked-key")
    set_environment("AWS_SECRET_ACCESS_KEY", "marked-secret")
    set_environment("AWS_ENDPOINT_URL_KINESIS", "http://user:marked-password@kinesis.test")
    found = for_executors(AwsConfig(), ORDERS)
    assert (found.region, found.endpoint_url) == ("eu-north-1", None)
    assert b"marked" not in pickle.dumps(found)
