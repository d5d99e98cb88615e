"""The error classes tell transient from final faults, and survive pickling."""

from __future__ import annotations

import pickle

from kinesis_spout import errors
from kinesis_spout.errors import (
    ConfigError,
    KeyThrottledError,
    KinesisError,
    ServiceUnavailableError,
    StaleCredentialsError,
    StillThrottledError,
    SubscriptionInUseError,
    ThrottledError,
)


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


def test_every_error_is_in_the_docstrings_tree() -> None:
    """The tree is the documentation of the errors."""
    kinds = [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, KinesisError)
    ]
    assert errors.__doc__ is not None
    assert [name for name in kinds if name not in errors.__doc__] == []


def test_a_bad_option_is_a_value_error_that_names_option_value_and_rule() -> None:
    """Also under another front end's name of the option."""
    error = ConfigError.of("read_rate", "must be above 0", -1)
    assert isinstance(error, ValueError)
    assert str(error) == "option read_rate: -1 must be above 0"
    assert str(error.respelt("readRate")) == "option readRate: -1 must be above 0"
    assert error.respelt("readRate").option == "readRate"


def test_a_config_error_survives_pickling() -> None:
    """Spark pickles the errors of its workers."""
    copy = pickle.loads(pickle.dumps(ConfigError.of("region", "is none", "x")))  # noqa: S301  # our own bytes
    assert (str(copy), copy.option) == ("option region: 'x' is none", "region")
