"""A fault plan: which requests fail, how, and how often. Deterministic, so that a test can be
repeated.

    fake.faults.add(throttle(), operation="GetRecords", shard_id="shardId-000000000000", times=3)
    fake.faults.add(drop(processed=True), operation="PutRecords")  # processed, no response
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kinesis_spout.testing.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable


class FaultKind(StrEnum):
    """How a request fails.

    ERROR        an error response
    SLOW         a late response
    DROP         no response, and the request is not processed
    DROP_ANSWER  no response, although the request is processed
    TRUNCATE     processed, and the connection breaks in the middle of the response's body
    ALTER        processed, and the response is changed
    """

    ERROR = "error"
    SLOW = "slow"
    DROP = "drop"
    DROP_ANSWER = "drop-answer"
    TRUNCATE = "truncate"
    ALTER = "alter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The fault of one request. `delay_s`: seconds before it takes effect. `alter` changes the
    response; `replace` makes another response to the request.
    """

    kind: FaultKind
    delay_s: float = 0.0
    code: str = ""
    message: str = ""
    status: int = 400
    alter: Callable[[Any], object] | None = None
    replace: Callable[[Any], object] | None = None

    def error(self) -> ServiceError:
        return ServiceError(self.code, self.message, self.status)


def error(
    code: str, message: str = "a fault plan injected this error", *, status: int = 400
) -> Fault:
    """Any error response of the service, for example `AccessDeniedException`."""
    return Fault(kind=FaultKind.ERROR, code=code, message=message, status=status)


def throttle() -> Fault:
    """A shard's rate limit: `ProvisionedThroughputExceededException`."""
    return error("ProvisionedThroughputExceededException", "Rate exceeded for shard")


def internal_failure() -> Fault:
    """HTTP 500."""
    return error(
        "InternalFailure",
        "The request processing has failed because of an unknown error.",
        status=500,
    )


def service_unavailable() -> Fault:
    """HTTP 503."""
    return error(
        "ServiceUnavailable",
        "The request has failed due to a temporary failure of the server.",
        status=503,
    )


def gone() -> Fault:
    """The shard is said not to exist, although it may."""
    return error("ResourceNotFoundException", "Shard does not exist")


def expired_iterator() -> Fault:
    return error("ExpiredIteratorException", "Iterator expired.")


def expired_token() -> Fault:
    """The page token of a listing has expired."""
    return error("ExpiredNextTokenException", "The NextToken has expired.")


def limit_exceeded() -> Fault:
    """Throttling of a control plane operation, for example ListShards."""
    return error("LimitExceededException", "Rate exceeded.")


def slow(delay_s: float) -> Fault:
    """The response comes `delay_s` seconds late."""
    return Fault(kind=FaultKind.SLOW, delay_s=delay_s)


def drop(*, processed: bool = False, delay_s: float = 0.0) -> Fault:
    """The connection breaks after `delay_s` seconds, before or after the request is processed.

    A delay longer than the caller's timeout makes a timeout.
    """
    return Fault(kind=FaultKind.DROP_ANSWER if processed else FaultKind.DROP, delay_s=delay_s)


def timeout(delay_s: float, *, processed: bool = False) -> Fault:
    """No response for `delay_s` seconds, then the connection breaks.

    `delay_s` should be longer than the caller's timeout.
    """
    return drop(processed=processed, delay_s=delay_s)


def truncate() -> Fault:
    """The connection breaks in the middle of the response's body. The headers promised all of it.

    Not for a subscription, whose body has no length.
    """
    return Fault(kind=FaultKind.TRUNCATE)


def alter(change: Callable[[Any], object]) -> Fault:
    """The response is what `change` returns for the original response.

    `change` gets one of `kinesis_spout.testing.service.answers`, and usually returns one. For a
    subscription it gets each event.
    """
    return Fault(kind=FaultKind.ALTER, alter=change)


def replace(answer: Callable[[Any], object]) -> Fault:
    """The response is what `answer` returns for the request, one of
    `kinesis_spout.testing.service.requests`.
    """
    return Fault(kind=FaultKind.ALTER, replace=answer)


@dataclass(slots=True, kw_only=True)
class _Rule:
    fault: Fault
    operation: str | None
    shard_id: str | None
    skip: int
    times: int | None

    def matches(self, operation: str, shard_id: str | None) -> bool:
        if self.operation not in (None, operation) or self.shard_id not in (None, shard_id):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(slots=True)
class FaultPlan:
    """Rules, oldest first. The first rule that matches a request is applied to it.

    Any thread may use it. `struck` lists the faults that were applied, as (operation, fault), so
    that a test can check that its fault really happened.
    """

    struck: list[tuple[str, Fault]] = field(default_factory=list)
    _rules: list[_Rule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(
        self,
        fault: Fault,
        *,
        operation: str | None = None,
        shard_id: str | None = None,
        skip: int = 0,
        times: int | None = 1,
    ) -> None:
        """Apply `fault` to `times` requests (None: all), after skipping the first `skip` requests.

        Only requests of `operation` and `shard_id` count (None: any).
        """
        with self._lock:
            self._rules.append(
                _Rule(fault=fault, operation=operation, shard_id=shard_id, skip=skip, times=times)
            )

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules.clear()

    def is_empty(self) -> bool:
        """Whether the plan affects no further request."""
        return not self._rules

    def take(self, operation: str, shard_id: str | None) -> Fault | None:
        """Return the fault for this request, if any, and count it in its rule.

        `shard_id`: the shard of a request that is for one shard, else None.
        """
        with self._lock:
            self._rules = [rule for rule in self._rules if rule.times is None or rule.times > 0]
            rule = next((rule for rule in self._rules if rule.matches(operation, shard_id)), None)
            if rule is None:
                return None
            self.struck.append((operation, rule.fault))
            return rule.fault
