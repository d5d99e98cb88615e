"""The acker for one process: follows what is made of each message until all of it is done. Any
thread may use it.

The rules, and why they hold, are in `xor_ledger`. For work that fans out from an emission of the
spout there is something easier to hold: `tracked_tuple`. By itself it serves programs whose parts
exchange messages:

    acker = Acker[str]()
    root, edge = acker.start("shardId-000000000000:495...:1", deadline_ms=clock.now_ms() + 30_000)
    ...                                           # whoever has the tuple makes two of it, and is done with it
    left, right = acker.new_edge(), acker.new_edge()
    acker.ack(root, edge ^ left ^ right)          # None: more to come
    acker.ack(root, right)                        # in any order, from any thread
    acker.ack(root, left)                         # Outcome(root, "shardId-...", Ending.ACKED)

A tuple that is made of several is anchored to all their roots: draw an edge for each tuple that it
is made of, put this edge into the value with which that tuple is acked, and ack the new tuple at
each root with the XOR of the edges that were drawn under it. A tuple that no root has to wait for
is just not told of.
"""

from __future__ import annotations

import threading
from random import Random
from typing import Generic, TypeVar

from kinesis_spout.tuple_tree.xor_ledger import Ending, Outcome, XorLedger

__all__ = ["Acker", "Ending", "Outcome"]

M = TypeVar("M")


class Acker(Generic[M]):
    """An `XorLedger` behind a lock: each method is one step, and blocks only as long as another
    thread's step takes.

    Outcomes are returned to whoever brought the root to its end, and to nobody else. Roots time out
    when `expire` is called; the owner does that, at `next_deadline_ms()`. `lock` and `core` are for
    those who have to change something of their own in the same step: hold `lock` around every use
    of `core`. Two ackers know nothing of each other's roots.
    """

    __slots__ = ("core", "lock")

    def __init__(self, random: Random | None = None) -> None:
        """`random` makes roots and edges; by default one that is seeded by the operating system."""
        self.core: XorLedger[M] = XorLedger(random or Random())  # noqa: S311  # ids that are to be different, not secret
        self.lock = threading.Lock()

    def __len__(self) -> int:
        """Roots that were issued and have not ended."""
        with self.lock:
            return len(self.core)

    def __contains__(self, root: int) -> bool:
        with self.lock:
            return root in self.core

    @property
    def late(self) -> int:
        """How many acks, fails and extensions came for a root after its end. They
        changed nothing.
        """
        with self.lock:
            return self.core.late

    def issue(self, *, deadline_ms: int | None = None) -> int:
        """See `XorLedger.issue`."""
        with self.lock:
            return self.core.issue(deadline_ms=deadline_ms)

    def new_edge(self) -> int:
        """See `XorLedger.new_edge`."""
        with self.lock:
            return self.core.new_edge()

    def init(
        self, root: int, message_id: M, edges: int, *, deadline_ms: int | None = None
    ) -> Outcome[M] | None:
        """See `XorLedger.init`."""
        with self.lock:
            return self.core.init(root, message_id, edges, deadline_ms=deadline_ms)

    def start(self, message_id: M, *, deadline_ms: int | None = None) -> tuple[int, int]:
        """See `XorLedger.start`."""
        with self.lock:
            return self.core.start(message_id, deadline_ms=deadline_ms)

    def ack(self, root: int, value: int) -> Outcome[M] | None:
        """See `XorLedger.ack`."""
        with self.lock:
            return self.core.ack(root, value)

    def fail(self, root: int, reason: str | None = None) -> Outcome[M] | None:
        """See `XorLedger.fail`."""
        with self.lock:
            return self.core.fail(root, reason)

    def extend(self, root: int, deadline_ms: int | None) -> bool:
        """See `XorLedger.extend`."""
        with self.lock:
            return self.core.extend(root, deadline_ms)

    def withdraw(self, root: int) -> bool:
        """See `XorLedger.withdraw`."""
        with self.lock:
            return self.core.withdraw(root)

    def next_deadline_ms(self) -> int | None:
        """See `XorLedger.next_deadline_ms`."""
        with self.lock:
            return self.core.next_deadline_ms()

    def expire(self, now_ms: int) -> list[Outcome[M]]:
        """See `XorLedger.expire`."""
        with self.lock:
            return self.core.expire(now_ms)
