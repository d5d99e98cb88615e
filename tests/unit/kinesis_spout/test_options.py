"""What is written out for completion agrees with the declaration of options."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from kinesis_spout.config import AwsConfig, ReadRate
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import SHARED
from kinesis_spout.spout import SpoutConfig
from spark_job.kinesis_source import KinesisSource
from spark_job.options import OPTIONS, RETIRED
from spark_job.settings import QuerySettings
from state.zookeeper.security import ZookeeperSecurity


def test_the_arguments_of_a_source_are_the_options() -> None:
    """A new option shows here, and one that is gone; None is the default of each."""
    assert {field.name for field in fields(KinesisSource)} == set(OPTIONS)
    assert {field.default for field in fields(KinesisSource)} == {None}
    for name, option in OPTIONS.items():
        kind = str(KinesisSource.__annotations__[name])
        is_number = isinstance(option.value, int | float) or option.bounds
        expected = (
            "bool" if isinstance(option.value, bool) else "Number" if is_number else ("Text", "str")
        )
        assert kind.startswith(expected), name
    assert not {option.name for option in OPTIONS.values()} & RETIRED.keys()


@pytest.mark.parametrize(
    ("kind", "prefix"), [(AwsConfig, ""), (ZookeeperSecurity, "zookeeper_")], ids=["aws", "zk"]
)
def test_a_connection_has_the_defaults_and_the_secrets_of_its_options(
    kind: type[AwsConfig | ZookeeperSecurity], prefix: str
) -> None:
    options = {name.removeprefix(prefix): option for name, option in SHARED.items()}
    shown = {field.name for field in fields(kind)} & options.keys()
    assert shown == {field.name for field in fields(kind)}
    for field in fields(kind):
        assert field.default == options[field.name].value, field.name
    secret = {"access_key_id": "a-s3cret", "secret_access_key": "b-s3cret"}
    secret |= {"session_token": "c-s3cret", "role_external_id": "d-s3cret"}
    role = "arn:aws:iam::123456789012:role/etl"
    made = (
        AwsConfig(**secret, role_arn=role)
        if kind is AwsConfig
        else ZookeeperSecurity(auth="sasl", user="etl", password="e-s3cret")
    )
    masked = {field.name for field in fields(made) if "s3cret" in str(getattr(made, field.name))}
    assert masked == {name for name in shown if options[name].secret}
    assert "s3cret" not in repr(made)


def test_a_rate_has_the_defaults_of_its_options() -> None:
    rate = ReadRate()
    assert rate.reads_per_second == SHARED["reads_per_second"].value
    assert rate.bytes_per_second == SHARED["read_bytes_per_second"].value


def test_every_default_is_within_its_bounds() -> None:
    """As the meaning of a choice names each value."""
    for option in OPTIONS.values():
        if option.default is not None:
            assert option.read(option.default) == option.value
        for choice in option.choices:
            assert f"`{choice}`" in option.meaning, option.name


async def later(*_: object) -> None:
    """Its call does nothing, and returns."""


@pytest.mark.parametrize("field", ["dead_letter", "on_ack", "on_fail"])
def test_the_spout_refuses_functions_that_a_call_does_not_run(field: str) -> None:
    """Of a `dead_letter` like this, each letter would be lost."""
    functions: dict[str, Any] = {field: later}
    with pytest.raises(ConfigError, match=f"option {field} is a function with async or yield"):
        SpoutConfig(stream="a", **functions)


@pytest.mark.parametrize(
    ("option", "value", "beside"),
    [
        ("aggregated_records", "keep", {}),
        ("consumer_arn", "arn:aws:kinesis:eu-west-1:1:stream/a", {"read_mode": "efo"}),
        ("max_unresolved_per_shard", 0, {}),
    ],
)
def test_the_spout_refuses_what_the_reader_refuses(
    option: str, value: object, beside: dict[str, Any]
) -> None:
    """By the same rule, which names the field here and the option there."""
    rule = SHARED[option].rule
    with pytest.raises(ConfigError) as refused:
        SpoutConfig(stream="a", **(beside | {option: value}))
    assert str(refused.value) == f"option {option}: {value!r} must be {rule}"
    with pytest.raises(ConfigError) as refused:
        QuerySettings.from_options({SHARED[option].name: str(value)})
    assert str(refused.value) == f"option {SHARED[option].name} is {str(value)!r}; use {rule}"
