"""The interval of a query's trigger, learned from when Spark asks for a batch. Pure.

Nobody tells the source its trigger. But Spark asks at multiples of a processing-time trigger's
interval since 1970 (`ProcessingTimeExecutor`), unless a batch took longer. So calls that are an
interval apart, and at its multiples, have that trigger. Without one, Spark asks every few
milliseconds while nothing is new.
"""

from __future__ import annotations

from collections import deque

MIN_MS = 2_000
_MINUTE_MS = 60_000
_SLACK_MS = 1_000
_MAX_CALLS = 4


class TriggerInterval:
    """`known_ms`: the interval; None without one. `is_known`: whether there was enough to tell."""

    def __init__(self) -> None:
        self._calls: deque[int] = deque(maxlen=_MAX_CALLS)
        self.known_ms: int | None = None
        self.is_known = False

    def called(self, now_ms: int) -> None:
        """Spark has asked for a batch, at this time of the driver's clock."""
        calls = self._calls
        calls.append(now_ms)
        gaps = [after - before for before, after in zip(calls, list(calls)[1:], strict=False)]
        if not gaps:
            return
        interval_ms = round(gaps[-1] / 1_000) * 1_000
        # Whole minutes are hardly met by chance; of another interval, one more call is wanted.
        wanted = 2 if interval_ms % _MINUTE_MS == 0 else 3
        if interval_ms >= MIN_MS and len(calls) >= wanted and self._fits(interval_ms, wanted):
            self.known_ms, self.is_known = interval_ms, True
        elif len(gaps) == _MAX_CALLS - 1 and max(gaps) < MIN_MS:
            self.known_ms, self.is_known = None, True

    def _fits(self, interval_ms: int, calls: int) -> bool:
        slack_ms = min(_SLACK_MS, interval_ms // 10)
        last = list(self._calls)[-calls:]
        numbers = [call // interval_ms for call in last]
        return all(call % interval_ms <= slack_ms for call in last) and numbers == list(
            range(numbers[0], numbers[0] + calls)
        )
