"""Retries of one call to Kinesis: exponential backoff with jitter, bounded by attempts and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception

from kinesis_spout.errors import KinesisError, MalformedResponseError, ThrottledError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kinesis_spout.clock import Clock

_T = TypeVar("_T")
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 10.0
# A body that was truncated on the network is complete the next time. One that the service sends
# malformed stays so.
_MALFORMED_ATTEMPTS = 3


def call_with_retries(
    call: Callable[[], _T],
    *,
    clock: Clock,
    random: Random,
    max_attempts: int,
    retry_for_s: float,
    retry_throttled: bool = True,
) -> _T:
    """Run `call` until it succeeds. Raises its error when that is not transient, and its last error
    when the bounds are reached. Blocks.
    """
    deadline_s = clock.monotonic_s() + retry_for_s
    try:
        return call()  # nearly every call; making a Retrying costs more than all else in it
    except KinesisError as exc:
        failed = [exc]

    def call_again() -> _T:
        if failed:
            raise failed.pop()
        return call()

    def wait_s(state: RetryCallState) -> float:
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**state.attempt_number)
        return random.uniform(_FIRST_WAIT_S / 2, longest)

    def is_last(state: RetryCallState) -> bool:
        return (
            state.attempt_number >= max_attempts
            or clock.monotonic_s() + state.upcoming_sleep > deadline_s
        )

    attempts_of_malformed = 0

    def is_transient(exc: BaseException) -> bool:
        nonlocal attempts_of_malformed
        if isinstance(exc, MalformedResponseError):
            attempts_of_malformed += 1
            return attempts_of_malformed < _MALFORMED_ATTEMPTS
        if isinstance(exc, ThrottledError) and not retry_throttled:
            return False
        return isinstance(exc, KinesisError) and exc.retryable

    retrying = Retrying(
        sleep=clock.sleep,
        stop=is_last,
        wait=wait_s,
        retry=retry_if_exception(is_transient),
        reraise=True,
    )
    return retrying(call_again)
