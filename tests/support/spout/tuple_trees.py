"""A spout, as far as tuple trees know it, and an acker that watches its lock."""

from __future__ import annotations

from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Any

from kinesis_spout.tuple_tree.acker import Acker
from kinesis_spout.tuple_tree.xor_ledger import XorLedger

if TYPE_CHECKING:
    from kinesis_spout.tuple_tree.tracked_tuple import TupleTree

TIMED_OUT = "its tuple tree was not complete by the deadline"


class Told:
    """Writes down what it is told, in order. Does not return while the acker's lock is held: who
    tells with it gets stuck.
    """

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


class GuardedCore(XorLedger[Any]):
    """Fails whoever touches it without the lock. For one thread: that somebody else holds it would
    do.
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
    """An acker whose core fails whoever uses it without the lock; for tests in one thread."""
    acker: Acker[Any] = Acker()
    acker.core = GuardedCore(acker.lock)
    return acker
