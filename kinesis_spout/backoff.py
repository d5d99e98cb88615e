"""How long to wait after failures in a row, before the same thing is tried again. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_MAX_STEPS = 64  # a float holds the product; by then every wait has its longest


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff, in seconds: from `first_s`, `growth` times as long after each failure,
    up to `longest_s`.

    `least`: the share of the wait that jitter leaves. Without jitter, those who failed together
    come back together ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """

    first_s: float
    longest_s: float
    growth: float = 2.0
    least: float = 0.5

    def wait_s(self, failures: int, random: Random | None = None) -> float:
        """The wait after so many failures in a row, from 1; exact without `random`."""
        steps = min(max(0, failures - 1), _MAX_STEPS)
        wait_s = min(self.longest_s, self.first_s * self.growth**steps)
        return wait_s if random is None else random.uniform(self.least * wait_s, wait_s)
