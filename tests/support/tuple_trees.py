"""A spout, as far as tuple trees know it."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.acker import Acker
    from kinesis_spout.tuple_tree import TupleTree

TIMED_OUT = "its tuple tree was not complete by the deadline"


class Told:
    """Writes down what it is told, in order. Does not return while the acker's lock is held: who tells with it gets stuck."""

    def __init__(self, acker: Acker[TupleTree]) -> None:
        self.acker = acker
        self.outcomes: list[tuple[str, str | None]] = []
        self.lock = Lock()

    def ack(self, message_id: str) -> None:
        self.tell(message_id, "acked")

    def fail(self, message_id: str, *, reason: str | None = None) -> None:
        self.tell(message_id, reason)

    def tell(self, message_id: str, outcome: str | None) -> None:
        len(self.acker)  # waits for the lock
        with self.lock:
            self.outcomes.append((message_id, outcome))
