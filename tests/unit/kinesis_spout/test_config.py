"""Configuration is checked when it is created, and shows no secret."""

from __future__ import annotations

import contextlib
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.config import (
    AwsConfig,
    ReadRate,
    StreamRef,
    check_function,
    did_you_mean,
    duration,
    parse_bool,
    parse_duration_ms,
    parse_size_bytes,
)
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ARN = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/my.stream_1-x"
ROLE = "arn:aws:iam::123456789012:role/path/reader"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"access_key_id": "a"}, "secret_access_key: is missing"),
        ({"session_token": "hush"}, "session_token: is set without"),
        (
            {"access_key_id": "a", "secret_access_key": "hush", "profile": "p"},
            "profile: 'p' is set although",
        ),
        ({"role_external_id": "hush"}, "role_external_id: is set without role_arn"),
        ({"role_arn": "reader"}, "role_arn: 'reader' is not the ARN"),
        ({"role_arn": ROLE, "role_session_name": "a b"}, "role_session_name: 'a b'"),
        ({"region": "Frankfurt"}, "region: 'Frankfurt' is not an AWS region"),
        (
            {"secret_access_key": "hush ", "access_key_id": "a"},
            "secret_access_key: is empty, is not text, or has surrounding",
        ),
        ({"endpoint_url": "localhost:4566"}, "endpoint_url: 'localhost:4566' is not the URL"),
        ({"wire_format": "xml"}, "wire_format: 'xml' must be auto, json or cbor"),
        ({"endpoint_url": "http://h:99999"}, "is not the URL of an endpoint"),
        ({"endpoint_url": "http://me:hush@host"}, "endpoint_url: must not contain a user name"),
    ],
)
def test_invalid_values_are_refused_with_option_and_rule(values: dict[str, Any], says: str) -> None:
    """Before any connection; the value is shown unless it is a secret."""
    with pytest.raises(ConfigError) as caught:
        AwsConfig(**values)
    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_repr_masks_every_secret() -> None:
    """Configurations are logged."""
    config = AwsConfig(
        region="eu-west-1",
        access_key_id="AKIA1",
        secret_access_key="hush1",
        session_token="hush2",
        role_arn=ROLE,
        role_external_id="hush3",
    )
    assert "hush" not in repr(config) + str(config)
    assert "AKIA1" not in repr(config)
    assert "eu-west-1" in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  # our own bytes


def test_a_stream_is_configured_by_name_or_arn() -> None:
    """The ARN contains its region."""
    assert StreamRef.parse(name="flights") == StreamRef("flights")
    by_arn = StreamRef.parse(arn=ARN)
    assert (by_arn.name, by_arn.arn, by_arn.region) == ("my.stream_1-x", ARN, "cn-north-1")
    assert by_arn.region_or(None) == "cn-north-1"
    assert StreamRef("flights").region_or("eu-west-1") == "eu-west-1"
    with pytest.raises(ConfigError, match="not the region of the stream"):
        by_arn.region_or("eu-west-1")


@pytest.mark.parametrize(
    ("name", "arn"),
    [
        (None, None),
        ("a", ARN),
        ("a b", None),
        ("x" * 129, None),
        (None, "flights"),
        (None, ARN + "/consumer/c:1"),
        (None, "arn:aws:kinesis:eu-west-1:12345:stream/x"),
    ],
)
def test_anything_but_exactly_one_valid_name_is_refused(name: str | None, arn: str | None) -> None:
    """Neither, both, or one that no stream can have."""
    with pytest.raises(ConfigError):
        StreamRef.parse(name=name, arn=arn)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_duration_ms, "500ms", 500),
        (parse_duration_ms, "2m", 120_000),
        (parse_duration_ms, "1h", 3_600_000),
        (parse_duration_ms, "0.5", 500),
        (parse_duration_ms, " 1.25 s ", 1250),
        (parse_size_bytes, "64MiB", 64 * 2**20),
        (parse_size_bytes, "10MB", 10**7),
        (parse_size_bytes, "4096", 4096),
        (parse_size_bytes, "0.1kb", 100),
        (parse_bool, " True", True),
        (parse_bool, "FALSE", False),
    ],
)
def test_values_of_options_are_parsed(parse: Callable[..., object], text: str, value: int) -> None:
    """A bare number is seconds, or bytes; MB and MiB differ."""
    assert parse(text, option="maxBytes") == value


@pytest.mark.parametrize(
    "text", ["", "s", "5 parsecs", "-1s", "1e3s", "5s5", "9" * 15 + "h", "٣s", "nan", "inf"]
)
def test_an_invalid_duration_is_refused_with_the_options_name(text: str) -> None:
    """The message has the text."""
    with pytest.raises(ConfigError, match="option maxFetchTime: ") as caught:
        parse_duration_ms(text, option="maxFetchTime")
    assert repr(text) in str(caught.value)
    with pytest.raises(ConfigError, match="option failOnDataLoss: 'yes' must be true or false"):
        parse_bool("yes", option="failOnDataLoss")


@given(st.text(max_size=12))
def test_every_text_is_a_value_or_a_config_error(text: str) -> None:
    """No other exception."""
    for parse in (parse_duration_ms, parse_size_bytes, parse_bool):
        with contextlib.suppress(ConfigError):
            assert parse(text, option="x") >= 0


async def later(_: object) -> None: ...


def in_steps(_: object) -> Iterator[None]:
    yield


class Later:
    async def __call__(self, _: object) -> None: ...


@pytest.mark.parametrize(
    "function", [later, in_steps, Later(), Later().__call__, partial(later, 1)]
)
def test_a_function_whose_call_runs_nothing_is_refused(function: object) -> None:
    """Its caller would take the records of the call for processed."""
    with pytest.raises(ConfigError, match="option f is a function with async or yield"):
        check_function("option f", function)


def test_what_can_be_called_is_accepted_and_nothing_else() -> None:
    for function in (print, dict, partial(print), "".join, lambda: later(1)):
        check_function("option f", function)
    with pytest.raises(ConfigError, match="option f is of type str, which cannot be called"):
        check_function("option f", "print")


def test_a_rate_is_bounded_and_the_nearest_name_is_found_whatever_its_case() -> None:
    """A rate above the five calls of the service is for emulators only. Spark lower-cases option
    keys.
    """
    for values in ({"reads_per_second": 0}, {"bytes_per_second": float("inf")}):
        with pytest.raises(ConfigError):
            ReadRate(**values)
    assert ReadRate(reads_per_second=1_000).own_limits() == (None, None)
    assert ReadRate(reads_per_second=0.5, bytes_per_second=9.0).own_limits() == (0.5, 9.0)
    known = ["streamName", "streamArn", "startingPosition"]
    assert did_you_mean("streamname", known) == "did you mean streamName?"
    assert did_you_mean("startPosition", known) == "did you mean startingPosition?"
    assert did_you_mean("zzz", known, "give one of them") == "give one of them"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (999, "999 ms"),
        (999.6, "1.0 s"),
        (47_000, "47 s"),
        (720_000, "12 min"),
        (276_480_000, "3.2 d"),
    ],
)
def test_a_duration_is_written_in_the_unit_that_reads_best(ms: float, text: str) -> None:
    assert duration(ms) == text
