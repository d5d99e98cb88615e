"""The acker of one process: follows the tuples that are made of each message until all are acked.
Thread-safe.

`kinesis_spout.tuple_tree.xor_ledger` has the rules and why they hold. For work that fans out from
an emission of the spout, `kinesis_spout.tuple_tree.tracked_tuple` is easier to use. The acker by
itself serves programs whose parts exchange messages:

    acker = Acker[str]()
    root, edge = acker.start("shardId-000000000000:495...:1", deadline_ms=clock.now_ms() + 30_000)
    ...                                           # a worker makes two tuples of this one
    left, right = acker.new_edge(), acker.new_edge()
    acker.ack(root, edge ^ left ^ right)          # None: more to come
    acker.ack(root, right)                        # in any order, from any thread
    acker.ack(root, left)                         # Outcome(root, "shardId-...", Ending.ACKED)

A tuple that is made of several others is anchored to all their roots. Draw one edge for each tuple
that it is made of, and XOR that edge into the value with which this tuple is acked. Ack the new
tuple at each root with the XOR of the edges that were drawn under that root. A tuple that no root
has to wait for needs no edge.
"""

from __future__ import annotations

import threading
from random import Random
from typing import Generic, TypeVar

from kinesis_spout.tuple_tree.xor_ledger import Ending, Outcome, XorLedger

__all__ = ["Acker", "Ending", "Outcome"]

M = TypeVar("M")


class Acker(Generic[M]):
    """An `XorLedger` behind a lock. Each method is one step, and blocks only while another thread's
    step runs.

    The outcome of a root is returned to the caller that ended it, and to nobody else. Roots time
    out only when `expire` is called; the owner calls it at `next_deadline_ms()`. Callers that
    change state of their own in the same step hold `lock` and use `core`. Two ackers share no
    roots.
    """

    __slots__ = ("core", "lock")

    def __init__(self, random: Random | None = None) -> None:
        """`random` draws roots and edges; by default it is seeded by the operating system."""
        self.core: XorLedger[M] = XorLedger(random or Random())  # noqa: S311  # ids have to differ, they are not secret
        self.lock = threading.Lock()

    def __len__(self) -> int:
        """How many roots were issued and have not ended."""
        with self.lock:
            return len(self.core)

    def __contains__(self, root: int) -> bool:
        with self.lock:
            return root in self.core

    @property
    def late(self) -> int:
        """How many acks, failures and extensions came for a root after its end. They changed
        nothing.
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
