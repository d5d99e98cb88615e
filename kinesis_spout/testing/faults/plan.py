"""A plan of faults: which requests are to go wrong, how, and how often. Deterministic, so that a
test can be repeated.

fake.faults.add(throttle(), operation="GetRecords", shard_id="shardId-000000000000", times=3)
fake.faults.add(drop(processed=True), operation="PutRecords")     # done, but nobody was told
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
    """`ERROR`: an error answer. `SLOW`: the answer comes late. `DROP`: no answer, not done.
    `DROP_ANSWER`: done, no answer. `ALTER`: done, and the answer is not what it ought to be.
    """

    ERROR = "error"
    SLOW = "slow"
    DROP = "drop"
    DROP_ANSWER = "drop-answer"
    ALTER = "alter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with one request. `delay_s` passes before it shows."""

    kind: FaultKind
    delay_s: float = 0.0
    code: str = ""
    message: str = ""
    status: int = 400
    alter: Callable[[Any], object] | None = None

    def error(self) -> ServiceError:
        return ServiceError(self.code, self.message, self.status)


def error(code: str, message: str = "injected by a fault plan", *, status: int = 400) -> Fault:
    """Any error answer of the service, `AccessDeniedException` say."""
    return Fault(kind=FaultKind.ERROR, code=code, message=message, status=status)


def throttle() -> Fault:
    return error("ProvisionedThroughputExceededException", "Rate exceeded for shard")


def internal_failure() -> Fault:
    """An HTTP 500."""
    return error(
        "InternalFailure",
        "The request processing has failed because of an unknown error.",
        status=500,
    )


def service_unavailable() -> Fault:
    """An HTTP 503."""
    return error(
        "ServiceUnavailable",
        "The request has failed due to a temporary failure of the server.",
        status=503,
    )


def expired_iterator() -> Fault:
    return error("ExpiredIteratorException", "Iterator expired.")


def expired_token() -> Fault:
    """Of a listing's page token."""
    return error("ExpiredNextTokenException", "The NextToken has expired.")


def limit_exceeded() -> Fault:
    """The throttling of the operations on streams, ListShards among them."""
    return error("LimitExceededException", "Rate exceeded.")


def slow(delay_s: float) -> Fault:
    """The answer comes `delay_s` seconds late."""
    return Fault(kind=FaultKind.SLOW, delay_s=delay_s)


def drop(*, processed: bool = False, delay_s: float = 0.0) -> Fault:
    """The connection breaks after `delay_s` seconds: before the request was processed, or after. A
    long delay makes a timeout.
    """
    return Fault(kind=FaultKind.DROP_ANSWER if processed else FaultKind.DROP, delay_s=delay_s)


def timeout(delay_s: float, *, processed: bool = False) -> Fault:
    """No answer for `delay_s` seconds, which should be more than the caller waits, and then the
    connection breaks.
    """
    return drop(processed=processed, delay_s=delay_s)


def alter(change: Callable[[Any], object]) -> Fault:
    """The answer is what `change` makes of it (it gets, and usually returns, one of
    `kinesis_spout.testing.service.answers`).

    Of a subscription, it gets the events one by one.
    """
    return Fault(kind=FaultKind.ALTER, alter=change)


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
    """Rules, oldest first; the first that matches a request strikes. Safe to use from many threads.

    `struck` lists what has been injected, as (operation, fault): a test can see that its fault did
    happen.
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
        """Let `fault` strike `times` requests (None: all) of the operation and shard (None: any),
        after the first `skip`.
        """
        with self._lock:
            self._rules.append(
                _Rule(fault=fault, operation=operation, shard_id=shard_id, skip=skip, times=times)
            )

    def clear(self) -> None:
        """Let nothing more go wrong."""
        with self._lock:
            self._rules.clear()

    def take(self, operation: str, shard_id: str | None) -> Fault | None:
        """The fault that is to strike this request, if any. Of a request for one shard, `shard_id`
        names it.
        """
        if not self._rules:
            return None
        with self._lock:
            self._rules = [rule for rule in self._rules if rule.times is None or rule.times > 0]
            rule = next((rule for rule in self._rules if rule.matches(operation, shard_id)), None)
            if rule is None:
                return None
            self.struck.append((operation, rule.fault))
            return rule.fault
