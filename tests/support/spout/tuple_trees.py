"""A spout as tuple trees see it, and an acker that checks the use of its lock."""

from __future__ import annotations

from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Any

from kinesis_spout.tuple_tree.acker import Acker
from kinesis_spout.tuple_tree.xor_ledger import XorLedger

if TYPE_CHECKING:
    from kinesis_spout.tuple_tree.tracked_tuple import TupleTree

TIMED_OUT = "its tuple tree was not complete by the deadline"


class RecordingSpout:
    """Records acks and fails in their order. A call does not return while the acker's lock is held,
    so a caller that holds it deadlocks.
    """

    def __init__(self, acker: Acker[TupleTree]) -> None:
        self.acker = acker
        self.outcomes: list[tuple[str, str | None]] = []
        self.extended: list[tuple[str, float | None]] = []
        self.lock = Lock()

    def extend(self, message_id: str, timeout_s: float | None) -> bool:
        len(self.acker)  # waits for the lock
        self.extended.append((message_id, timeout_s))
        return True

    def ack(self, message_id: str) -> None:
        self.record(message_id, "acked")

    def fail(self, message_id: str, *, reason: str | None = None) -> None:
        self.record(message_id, reason)

    def record(self, message_id: str, outcome: str | None) -> None:
        len(self.acker)  # waits for the lock
        with self.lock:
            self.outcomes.append((message_id, outcome))


class GuardedLedger(XorLedger[Any]):
    """Fails each use without the lock. For tests in one thread: it does not check which thread
    holds the lock.
    """

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        with lock:
            super().__init__(Random(1))  # noqa: S311  # ids that are to be different, not secret

    def __getattribute__(self, name: str) -> object:
        if name != "lock" and not name.startswith("__"):
            assert self.lock.locked(), f"{name} was used without the lock"
        return super().__getattribute__(name)


def guarded_acker() -> Acker[Any]:
    """An acker whose ledger fails each use without the lock; for tests in one thread."""
    acker: Acker[Any] = Acker()
    acker.core = GuardedLedger(acker.lock)
    return acker
