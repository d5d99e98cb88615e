"""The retry policy: when a failed record may be tried again, and when it may not be any more.

A pure value: time and randomness are arguments. `attempts` is the number of deliveries whose
failure counted, so it is usually 1 after the first delivery has failed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

SUSPICION_MS = 20_000
"""How long a record may fail while nothing else succeeds, until its failures count. Before that,
what it is written to may be down."""


def plain_number(value: Real) -> int | float:
    """The number as one of Python: another one, such as numpy's, cannot be stored or waited for."""
    return int(value) if isinstance(value, Integral) else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with a cap and jitter, limited by a number of retries and an age.

    - `retry_limit`: the number of retries after the first delivery. 3 means up to four deliveries;
      0 means no retry.
    - `first_delay_ms`, `growth`, `max_delay_ms`: retry n waits `first_delay_ms * growth ** (n -
      1)`, at most `max_delay_ms`.
    - `jitter`: the random share of the delay. With 0, the delay is exact; with 1, it is anything
      from zero to the full delay.
    - `max_age_ms`: a record is no longer retried when its first counted failure is older than this.
      None: no limit.
    """

    retry_limit: int = 3
    first_delay_ms: int = 1_000
    growth: float = 2.0
    max_delay_ms: int = 300_000
    jitter: float = 0.2
    max_age_ms: int | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not (is_number or (value is None and one.default is None)):
                raise ValueError(f"RetryPolicy.{one.name} is {value!r}; it must be a number")
            if is_number:
                object.__setattr__(self, one.name, plain_number(value))
        for field, holds, rule in (
            ("retry_limit", self.retry_limit >= 0, "0 or more"),
            ("first_delay_ms", self.first_delay_ms >= 0, "0 or more"),
            ("growth", 1 <= self.growth < float("inf"), "a finite number of 1 or more"),
            ("max_delay_ms", self.max_delay_ms >= self.first_delay_ms, "at least first_delay_ms"),
            ("jitter", 0 <= self.jitter <= 1, "from 0 to 1"),
            ("max_age_ms", self.max_age_ms is None or self.max_age_ms >= 1, "None or at least 1"),
        ):
            if not holds:
                value = getattr(self, field)
                raise ValueError(f"RetryPolicy.{field} is {value}; it must be {rule}")

    def due_ms(self, attempts: int, now_ms: int, random: Random) -> int:
        """The time of the next retry after `attempts` failed deliveries, the last at `now_ms`."""
        try:
            delay = self.first_delay_ms * self.growth ** max(attempts - 1, 0)
        except OverflowError:  # a float cannot hold it, so it is above the cap
            delay = self.max_delay_ms if self.first_delay_ms else 0
        delay = min(delay, self.max_delay_ms)
        return now_ms + round(delay - delay * self.jitter * random.random())

    def exhausted(self, attempts: int, first_failure_ms: int | None, now_ms: int) -> bool:
        """Whether a record that failed `attempts` times may no longer be retried."""
        # The first delivery is not a retry, so a limit of n allows n + 1 failures but not one more.
        if attempts > self.retry_limit:
            return True
        if self.max_age_ms is None or first_failure_ms is None:
            return False
        return now_ms - first_failure_ms > self.max_age_ms
