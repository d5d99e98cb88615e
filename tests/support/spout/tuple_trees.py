"""A spout as tuple trees see it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kinesis_spout.tuple_tree import Acker, TupleTree

TIMED_OUT = "some parts of the tuple tree were not acked before the deadline"


class RecordingSpout:
    """Records acks and fails in their order. A call fails in a thread that has the acker's lock."""

    def __init__(self, acker: Acker[TupleTree]) -> None:
        self.acker = acker
        self.outcomes: list[tuple[str, str | None]] = []
        self.extended: list[tuple[str, float | None]] = []
        self.lock = Lock()

    def extend(self, message_id: str, timeout_s: float | None) -> bool:
        self.check_lock()
        self.extended.append((message_id, timeout_s))
        return True

    def ack(self, message_id: str) -> None:
        self.record(message_id, "acked")

    def fail(self, message_id: str, *, reason: str | None = None, retry: bool = True) -> None:
        self.record(message_id, reason if retry else f"{reason}, not retried")

    def record(self, message_id: str, outcome: str | None) -> None:
        self.check_lock()
        with self.lock:
            self.outcomes.append((message_id, outcome))

    def check_lock(self) -> None:
        with pytest.raises(RuntimeError, match="un-acquired lock"):
            self.acker.lock.release()
