"""The options of ZooKeeper's security, as commands take them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kinesis_spout.cli.shared_options import ZOOKEEPER_OPTIONS, connection_of, security_of
from kinesis_spout.config import AwsConfig
from kinesis_spout.errors import ConfigError
from spark_job.options import OPTIONS, ZOOKEEPER_PREFIX
from spark_job.settings import SourceSettings
from state.zookeeper.security import ZookeeperSecurity

MARK = "marked-password"
PLACE = {"streamName": "orders", "applicationName": "etl", "zookeeper": "zk"}


def test_the_options_are_those_of_the_spark_source() -> None:
    names = [each.name for each in fields(ZookeeperSecurity)]
    assert {OPTIONS[ZOOKEEPER_PREFIX + name].name: name for name in names} == ZOOKEEPER_OPTIONS


def test_both_connections_take_their_own_from_the_same_texts() -> None:
    pairs = ["region=eu-west-1", "ZOOKEEPERTLS=true", "zookeeperVerifyHostname=false"]
    assert security_of(pairs) == ZookeeperSecurity(tls=True, verify_hostname=False)
    assert connection_of({}, pairs) == AwsConfig(region="eu-west-1")


def test_a_bad_text_is_refused_by_its_option() -> None:
    with pytest.raises(ConfigError, match=r"zookeeperTls.*must be true or false"):
        security_of(["zookeeperTls=yes"])
    with pytest.raises(ConfigError, match="did you mean zookeeperTls"):
        security_of(["zookeperTls=true"])


def test_the_source_refuses_what_does_not_go_together_without_the_password() -> None:
    with pytest.raises(ConfigError, match=r"^option zookeeperPassword is given with") as refused:
        SourceSettings.from_options(PLACE | {"zookeeperPassword": MARK})
    assert MARK not in str(refused.value)


def test_the_settings_of_the_source_hide_the_password() -> None:
    given = {"zookeeperAuth": "digest", "zookeeperUser": "etl", "zookeeperPassword": MARK}
    settings = SourceSettings.from_options(PLACE | given)
    assert settings.zookeeper_security.password == MARK
    assert MARK not in repr(settings)
