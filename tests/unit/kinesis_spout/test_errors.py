"""The error classes tell transient from final faults, and survive pickling. Reasons that a user's
code gives: each becomes a text that UTF-8 can encode, and none raises.
"""

from __future__ import annotations

import pickle

import pytest

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
    described,
    text_of,
)
from tests.support.outcomes.odd_errors import ODD_ERRORS, Unprintable


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
    assert described(Unprintable()) == "Unprintable: its message cannot be formatted: RuntimeError"
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
