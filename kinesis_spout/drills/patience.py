"""How long a drill waits for something. Pure."""

from __future__ import annotations

_MOST = 5  # times the limit: a job that delivers the same records for ever must end the drill


class Patience:
    """Ends when the job has told nothing new for `limit_s` seconds, and in any case after five
    times as long. A slow machine that gets on is no fault of the job.
    """

    def __init__(self, limit_s: float, *, told: int, now_s: float) -> None:
        self._limit_s = limit_s
        self._began_s = now_s
        self._deadline_s = now_s + limit_s
        self._told = told

    def is_over(self, told: int, now_s: float) -> bool:
        """`told`: the number of lines that the job has told so far."""
        if told > self._told:
            self._told = told
            self._deadline_s = min(now_s + self._limit_s, self._began_s + _MOST * self._limit_s)
        return now_s > self._deadline_s

    def waited_s(self, now_s: float) -> float:
        return now_s - self._began_s
