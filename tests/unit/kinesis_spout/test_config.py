"""Configuration is checked when it is created, shows no secret, and agrees with the declaration of
options; errors name what is wrong, and tell transient from final faults.
"""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import fields
from fractions import Fraction
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout import errors
from kinesis_spout.config import (
    AwsConfig,
    ReadRate,
    StreamRef,
    check_function,
    did_you_mean,
    parse_bool,
    parse_duration_ms,
    parse_size_bytes,
)
from kinesis_spout.errors import (
    ConfigError,
    KeyThrottledError,
    KinesisError,
    ServiceUnavailableError,
    StaleCredentialsError,
    StillThrottledError,
    SubscriptionInUseError,
    ThrottledError,
    described,
    text_of,
)
from kinesis_spout.options import SHARED
from kinesis_spout.spout import SpoutConfig
from scheme import JsonScheme
from spark_job.kinesis_source import KinesisSource
from spark_job.options import OPTIONS, RETIRED
from spark_job.settings import QuerySettings
from state.retry_policy import RetryPolicy
from state.zookeeper.security import ZookeeperSecurity
from tests.support.outcomes.odd_errors import ODD_ERRORS, Unprintable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheme.record import Record


ARN = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/my.stream_1-x"
ROLE = "arn:aws:iam::123456789012:role/path/reader"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"access_key_id": "a"}, "secret_access_key: the secret access key is missing"),
        ({"session_token": "hush"}, "session_token: the session token is set without"),
        (
            {"access_key_id": "a", "secret_access_key": "hush", "profile": "p"},
            "profile: 'p' is set, but",
        ),
        ({"role_external_id": "hush"}, "role_external_id: the external id is set without role_arn"),
        ({"role_arn": "reader"}, "role_arn: 'reader' is not the ARN"),
        ({"role_arn": ROLE, "role_session_name": "a b"}, "role_session_name: 'a b'"),
        ({"region": "Frankfurt"}, "region: 'Frankfurt' is not the name of an AWS region"),
        (
            {"secret_access_key": "hush ", "access_key_id": "a"},
            "secret_access_key: the value is empty",
        ),
        ({"endpoint_url": "localhost:4566"}, "endpoint_url: 'localhost:4566' is not a valid"),
        ({"wire_format": "xml"}, "wire_format: 'xml' must be auto, json or cbor"),
        ({"endpoint_url": "http://h:99999"}, "is not a valid endpoint URL"),
        (
            {"endpoint_url": "http://me:hush@host"},
            "endpoint_url: the URL must not contain a user name",
        ),
    ],
)
def test_invalid_values_are_refused_with_option_and_rule(values: dict[str, Any], says: str) -> None:
    """Before any connection; the value is shown unless it is a secret."""
    with pytest.raises(ConfigError) as caught:
        AwsConfig(**values)
    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


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
        check_function("option f", function, takes=["a record"])


def test_a_caller_that_iterates_over_the_result_takes_a_function_with_yield() -> None:
    check_function("option f", in_steps, takes=["a record"], may_yield=True)
    for function in (later, Later()):
        with pytest.raises(ConfigError, match="option f is a function with async, so"):
            check_function("option f", function, takes=["a record"], may_yield=True)


def test_what_can_be_called_is_accepted_and_nothing_else() -> None:
    for function in (print, dict, partial(print), "".join, lambda _: later(1)):
        check_function("option f", function, takes=["a record"])
    with pytest.raises(ConfigError, match="option f is of type str, which cannot be called"):
        check_function("option f", "print", takes=["a record"])


def test_the_parameters_are_those_of_the_function_that_is_called() -> None:
    """A decorator may give the function that it wraps further arguments."""

    @wraps(pow)
    def with_exponent(number: int) -> int:
        return int(pow(number, 2))

    check_function("option f", with_exponent, takes=["a number"])
    with pytest.raises(ConfigError, match="option f cannot be called with a number: missing a"):
        check_function("option f", lambda number, exponent: None, takes=["a number"])


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("stream", 3, "is of type int; pass a string"),
        ("zookeeper", ["zk1:2181"], "is of type list; pass a string"),
        ("retry", 3, "is of type int; pass a value of class RetryPolicy"),
        ("aws", {"secret_access_key": "x"}, "is of type dict; pass a value of class AwsConfig"),
        ("scheme", "text", "is of type str; pass a scheme, such as JsonScheme(...)"),
        ("scheme", JsonScheme, "is a class; pass a scheme, such as JsonScheme(...)"),
        ("max_pending", "10", "is of type str; pass a whole number"),
        ("max_pending", True, "is of type bool; pass a whole number"),
        ("message_timeout_s", "30s", "is of type str; pass a number"),
        ("commit_interval_s", None, "is of type NoneType; pass a number"),
        ("shards", 0, "is of type int; pass a tuple of shard ids"),
        ("listeners", 0, "is of type int; pass a tuple of listeners"),
        ("idle_wait", 5, "is of type int, which cannot be called"),
        ("limit_wait", None, "is of type NoneType, which cannot be called"),
        ("dead_letter", later, "is a function with async or yield"),
        ("on_ack", in_steps, "is a function with async or yield"),
        ("on_fail", Later(), "is a function with async or yield"),
        ("dead_letter", lambda: None, "cannot be called with a dead letter: too many"),
        ("on_ack", lambda: None, "cannot be called with an emission: too many"),
        ("on_fail", lambda _: None, "cannot be called with an emission and a reason: too many"),
    ],
)
def test_the_spout_refuses_a_value_of_another_type(option: str, value: object, said: str) -> None:
    """A text in the reader's form, a class for an object, None without a meaning. The value may be
    a secret, and is not shown.
    """
    given: dict[str, Any] = {"stream": "a", option: value}
    with pytest.raises(ConfigError) as refused:
        SpoutConfig(**given)
    assert str(refused.value).startswith(f"option {option} {said}")


def test_the_spout_keeps_every_number_as_one_of_python() -> None:
    """No other number can be stored, and a thread cannot wait for another number of seconds."""
    whole: Any = np.int64(5)
    half: Any = Fraction(1, 2)
    retry = RetryPolicy(retry_limit=whole, max_age_ms=whole, jitter=half)
    config = SpoutConfig(stream="a", max_pending=whole, commit_interval_s=half, retry=retry)
    wholes = (config.max_pending, retry.retry_limit, retry.max_age_ms)
    assert [(type(one), one) for one in wholes] == [(int, 5)] * 3
    halves = (config.commit_interval_s, retry.jitter)
    assert [(type(one), one) for one in halves] == [(float, 0.5)] * 2


def test_a_scheme_of_the_spout_needs_to_decode_and_no_more() -> None:
    class Lengths:
        def decode(self, record: Record) -> tuple[int]:
            return (len(record.data),)

        @property
        def schema_ddl(self) -> str:
            raise LookupError("nobody needs it here")

    scheme: Any = Lengths()
    assert SpoutConfig(stream="a", scheme=scheme).scheme is scheme


def test_the_reader_refuses_the_class_of_a_scheme() -> None:
    scheme: Any = JsonScheme
    with pytest.raises(ConfigError, match="option scheme is a class; pass a scheme"):
        KinesisSource(stream="a", application="b", zookeeper="zk:2181", scheme=scheme)


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


def test_only_transient_faults_are_retryable() -> None:
    """Retry loops decide by the class alone."""
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, KinesisError)
    ]
    waits = {ServiceUnavailableError, SubscriptionInUseError, StaleCredentialsError}
    transient = {ThrottledError, KeyThrottledError, *waits}
    assert {kind for kind in kinds if kind.retryable} == transient
    assert issubclass(StillThrottledError, ThrottledError)


def test_a_bad_option_is_a_value_error_that_names_option_value_and_rule() -> None:
    """Also under another front end's name of the option, and pickled, as by Spark's workers."""
    error = ConfigError.of("read_rate", "must be above 0", -1)
    error = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert isinstance(error, ValueError)
    assert str(error) == "option read_rate: -1 must be above 0"
    assert str(error.respelt("readRate")) == "option readRate: -1 must be above 0"
    assert error.respelt("readRate").option == "readRate"


@pytest.mark.parametrize("error", ODD_ERRORS, ids=lambda one: type(one).__name__)
def test_any_error_has_a_description_that_can_be_stored(error: BaseException) -> None:
    assert (
        described(Unprintable())
        == "Unprintable: the error's message cannot be formatted: RuntimeError"
    )
    assert described(ValueError()) == "ValueError"
    found = described(error)
    assert found.startswith(text_of(type(error).__name__))
    assert len(found.encode()) <= 4_000
    assert "\0" not in found


def test_an_interrupt_during_the_text_is_no_text() -> None:
    class Interrupting:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        text_of(Interrupting())
