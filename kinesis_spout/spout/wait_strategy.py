"""How long a loop over emissions waits when there is none: a function of how often in a row there
was none.

The wait ends early when something changes: a record has come, an outcome was told, the spout was
closed.
"""

from __future__ import annotations

from collections.abc import Callable

WaitStrategy = Callable[[int], float]
"""Takes the length of the streak, from 1, and gives the longest wait in seconds; 0 does not wait.
"""

_FIRST_S = 0.001
_LONGEST_S = 0.1
_DOUBLINGS = 7  # to the longest


def exponential_backoff(streak: int) -> float:
    """From a millisecond, doubling, to a tenth of a second."""
    return _LONGEST_S if streak > _DOUBLINGS else min(_LONGEST_S, _FIRST_S * 2.0 ** (streak - 1))


def do_not_wait(_streak: int) -> float:
    """Ask again at once: lowest latency, and a core of the machine for it."""
    return 0.0
