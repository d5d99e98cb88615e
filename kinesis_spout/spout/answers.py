"""Tells of deliveries that time out, and of a program that answers none."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from state.owner.run_log import NoAnswers

if TYPE_CHECKING:
    from kinesis_spout.clock import Clock

log = logging.getLogger("kinesis_spout")
TOLD_S = 60.0


class AnswerWatch:
    """One per open spout. For the thread that fails what times out; `finish` is for after it.

    `timeout_ms`: how long a delivery may be out.
    """

    def __init__(self, stream: str, timeout_ms: int, clock: Clock) -> None:
        self._stream = stream
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._answered = 0
        self._silent: NoAnswers | None = None
        self._untold = 0  # time-outs that no line in the log has
        self._told_s = float("-inf")

    def look(self, answered: int, timed_out: int) -> NoAnswers | None:
        """`answered`: how many outcomes its program has given so far; `timed_out`: how many
        deliveries have timed out just now. Returns since when none was answered, once one has been
        out for a whole timeout since the last answer.
        """
        before = self._silent
        if answered != self._answered:
            self._answered, self._silent = answered, None
        elif timed_out:
            since_ms, count = self._clock.now_ms() - self._timeout_ms, timed_out
            if before is not None:
                since_ms, count = before.since_ms, before.count + timed_out
            self._silent = NoAnswers(since_ms=since_ms, count=count)
        self._untold += timed_out
        begins = before is None and self._silent is not None
        if self._untold and (begins or self._clock.monotonic_s() - self._told_s >= TOLD_S):
            self._tell()
        if before is not None and self._silent is None:
            log.warning("records of stream %s are answered again", self._stream)
        return self._silent

    def finish(self) -> None:
        """The spout is closed: tell what no line has told."""
        if self._untold:
            self._tell()

    def _tell(self) -> None:
        many = "1 delivery" if self._untold == 1 else f"{self._untold:,} deliveries"
        besides = "" if self._silent is None else ", and none was answered in that time"
        log.warning(
            "%s of stream %s had no answer within %s (message_timeout_s)%s; each counts as failed, "
            "and is delivered again until its retries are used up",
            many,
            self._stream,
            duration(self._timeout_ms),
            besides,
        )
        self._untold, self._told_s = 0, self._clock.monotonic_s()
