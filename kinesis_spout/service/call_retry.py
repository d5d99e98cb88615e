"""Retries of one call to Kinesis: exponential backoff with jitter, bounded by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception

from kinesis_spout.backoff import Backoff
from kinesis_spout.errors import (
    KinesisError,
    MalformedResponseError,
    ThrottledError,
    UnreadableRecordError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kinesis_spout.clock import Clock

_T = TypeVar("_T")
_FAILED = Backoff(first_s=0.4, longest_s=10.0, least=0.25)
# A body that was truncated on the network is complete some time later. One that the service sends
# malformed, as that of a wrong endpoint, stays so, and the user waits for the error.
_MALFORMED_FOR_S = 15.0


def call_with_retries(
    call: Callable[[], _T],
    *,
    clock: Clock,
    random: Random,
    retry_for_s: float,
    retry_throttled: bool = True,
) -> _T:
    """Run `call` until it succeeds. Raises its error when that is not transient, and its last error
    when no attempt can begin within `retry_for_s` seconds of the first. Blocks.

    Attempts are not counted: with jitter, a number of them may be used up in the first seconds of
    an outage that ends soon.
    """
    begun_s = clock.monotonic_s()
    deadline_s = begun_s + retry_for_s
    try:
        return call()  # nearly every call; making a Retrying costs more than all else in it
    except KinesisError as exc:
        failed = [exc]

    def call_again() -> _T:
        if failed:
            raise failed.pop()
        return call()

    def is_last(state: RetryCallState) -> bool:
        return clock.monotonic_s() + state.upcoming_sleep > deadline_s

    def is_transient(exc: BaseException) -> bool:
        if isinstance(exc, MalformedResponseError) and not isinstance(exc, UnreadableRecordError):
            return clock.monotonic_s() < begun_s + _MALFORMED_FOR_S
        if isinstance(exc, ThrottledError) and not retry_throttled:
            return False
        return isinstance(exc, KinesisError) and exc.retryable

    retrying = Retrying(
        sleep=clock.sleep,
        stop=is_last,
        wait=lambda state: _FAILED.wait_s(state.attempt_number, random),
        retry=retry_if_exception(is_transient),
        reraise=True,
    )
    return retrying(call_again)
