"""Storm's acker, of one process: follows the tuples that are made of each message until all are
acked, in constant memory per tree, by XOR of random 64-bit ids.

For work that fans out from an emission of the spout, `kinesis_spout.tuple_tree` is easier to use.
The acker by itself serves programs whose parts exchange messages:

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

Each tuple of a tree is an *edge*, a random id. The *root* stands for the whole tree, and for the
message that it was made of. Each edge id is XORed in twice: on emit, by the maker of the tuple, and
on ack, by the worker that is done with it. All values go into one number per root, so an edge that
was XORed in twice is gone from it, in whatever order. There are three events:

    init(root, message, edges)   the message became these tuples: the XOR of their edges
    ack(root, value)             a tuple is done: its edge XOR the edges of the tuples made of it
    fail(root)                   a tuple cannot be done: the tree fails as a whole

Why zero means complete: while a tuple is outstanding, its edge was XORed in only once. A tuple's
emit is part of the ack of the tuple it was made of, so an ack that overtakes others brings an edge
along that only these, and in the end the init, can cancel. (A count of tuples would reach zero too
early then.) The XOR of outstanding edges is zero by accident with a probability of 2**-64 at each
ack: at a billion acks a second, once in some 585 years. Edges need no more than that: two equal
ones do no harm unless they are all that is outstanding. Only zero is never drawn, because it would
change nothing. Each ack has to be passed on exactly once: an ack that comes twice cancels itself.

Early or late? An ack before the init and an ack after the end look the same, as there is no init.
So roots are issued here, counting up, and a root has an entry from its issue until its end. An
event for an issued root without an entry is late, and changes nothing. The count begins at random,
so that a root of another acker or of an earlier process is (almost surely) not taken for one of
these.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Generic, NamedTuple, TypeVar

from kinesis_spout.errors import IllegalAckerEventError
from state.collections import DueQueue, ShrinkingDict

__all__ = ["Acker", "Ending", "Outcome"]

M = TypeVar("M")
"""The message of a root: a message id, or any value that identifies it to the caller."""

_EDGE_BITS = 64
# Roots begin below 2**62, and there are more than 2**62 left before they outgrow 64 bits.
_FIRST_ROOT_BITS = 62


class Ending(Enum):
    """How a root has ended."""

    ACKED = "acked"
    FAILED = "failed"
    TIMED_OUT = "timed out"


class Outcome(NamedTuple, Generic[M]):
    """The end of a root, returned exactly once. `reason` is the one passed to `fail`."""

    root: int
    message_id: M
    ending: Ending
    reason: str | None = None


@dataclass(slots=True, eq=False)
class _Root(Generic[M]):
    """The state of a root between its issue and its end."""

    deadline_ms: int | None
    value: int = 0
    # The message; in a tuple, because it may be any value, None included.
    init: tuple[M] | None = None
    # The latest deadline that `extend` was given before the init.
    asked: tuple[int | None] | None = None
    failed: bool = False
    reason: str | None = None


class Acker(Generic[M]):
    """Thread-safe: each method is one atomic step, and blocks only while another thread is in a
    step. To combine several steps, or a step and your own state, into one, hold `lock`.

    Every method that may end a root returns the root's outcome to the caller that ended it, and to
    nobody else; it returns None if the root continues or had already ended. Roots time out only
    when `expire` is called; the owner calls it at `next_deadline_ms()`. Times are milliseconds of
    any one clock. `init`, `ack` and `fail` cost O(1), plus at most O(log n) for a deadline. Memory
    use grows with the number of roots between issue and end, not with the size of their trees.
    Ackers share no roots.
    """

    def __init__(self, random: Random | None = None) -> None:
        """`random` draws roots and edges; by default it is seeded by the operating system."""
        self.lock = threading.RLock()
        self._random = random or Random()  # noqa: S311  # ids have to differ, they are not secret
        self._first_root = self._random.getrandbits(_FIRST_ROOT_BITS) + 1
        self._next_root = self._first_root
        self._roots: ShrinkingDict[int, _Root[M]] = ShrinkingDict()
        self._deadlines: DueQueue[int] = DueQueue()
        self.late = 0
        """Acks, failures and extensions that came after a root's end. They changed nothing."""

    def __len__(self) -> int:
        """How many roots were issued and have not ended."""
        with self.lock:
            return len(self._roots)

    def __contains__(self, root: int) -> bool:
        with self.lock:
            return root in self._roots

    def message_of(self, root: int) -> M | None:
        """A root's message between its init and its end; None for any other root."""
        with self.lock:
            entry = self._roots.get(root)
            return None if entry is None or entry.init is None else entry.init[0]

    def issue(self, *, deadline_ms: int | None = None) -> int:
        """Return a new root. Without an init by `deadline_ms`, it is forgotten (None: never)."""
        with self.lock:
            root = self._next_root
            self._next_root += 1
            self._roots[root] = _Root(deadline_ms)
            if deadline_ms is not None:
                self._deadlines.put(root, deadline_ms)
            return root

    def new_edge(self) -> int:
        """Return a random id for a tuple, from 1 to 2**64 - 1."""
        with self.lock:
            while not (edge := self._random.getrandbits(_EDGE_BITS)):
                pass
            return edge

    def init(
        self, root: int, message_id: M, edges: int, *, deadline_ms: int | None = None
    ) -> Outcome[M] | None:
        """Start a root: `edges` is the XOR of the message's first tuples, and `deadline_ms` is the
        time at which the root times out (None: never).

        Acks and failures of the root may have come earlier. Without edges, the root is acked at
        once. Raises `IllegalAckerEventError` for a second init, and for an init after the root was
        forgotten or withdrawn.
        """
        with self.lock:
            _check(root, edges)
            entry = self._roots.get(root)
            if entry is None or entry.init is not None:
                self._check_issued(root)
                raise IllegalAckerEventError(
                    f"init was called for root {root}, which is already open or has ended",
                    "use a different root for each tuple tree",
                )
            entry.init = (message_id,)
            if entry.asked is not None and _later(entry.asked[0], deadline_ms):
                deadline_ms = entry.asked[0]
            self._move(root, entry, deadline_ms)
            entry.value ^= edges
            if entry.failed:
                return self._end(root, entry, entry.init, Ending.FAILED)
            return None if entry.value else self._end(root, entry, entry.init, Ending.ACKED)

    def start(self, message_id: M, *, deadline_ms: int | None = None) -> tuple[int, int]:
        """Issue and init a root in one step, for a message that becomes one tuple. Returns root and
        edge.
        """
        with self.lock:
            root, edge = self.issue(deadline_ms=deadline_ms), self.new_edge()
            entry = self._roots[root]
            entry.init, entry.value = (message_id,), edge
            return root, edge

    def ack(self, root: int, value: int) -> Outcome[M] | None:
        """Ack a tuple. `value` is its edge XOR the edges of the tuples derived from it under this
        root.
        """
        with self.lock:
            if (entry := self._live(root)) is None:
                return None
            if value >> _EDGE_BITS:
                _check(root, value)
            entry.value ^= value
            if entry.value or entry.init is None:
                return None
            return self._end(root, entry, entry.init, Ending.ACKED)

    def fail(self, root: int, reason: str | None = None) -> Outcome[M] | None:
        """Fail the whole tree. A failure before the init is remembered. The first reason counts."""
        with self.lock:
            if (entry := self._live(root)) is None:
                return None
            if not entry.failed:
                entry.failed, entry.reason = True, reason
            return None if entry.init is None else self._end(root, entry, entry.init, Ending.FAILED)

    def extend(self, root: int, deadline_ms: int | None) -> bool:
        """Move the root's deadline to `deadline_ms` (None: no deadline). An earlier deadline than
        the current one changes nothing.

        Also works before the init. Returns False if the root has ended.
        """
        with self.lock:
            if (entry := self._live(root)) is None:
                return False
            if _later(deadline_ms, entry.deadline_ms):
                self._move(root, entry, deadline_ms)
            if entry.init is None and (entry.asked is None or _later(deadline_ms, entry.asked[0])):
                entry.asked = (deadline_ms,)
            return True

    def withdraw(self, root: int) -> bool:
        """End the root without an outcome: its message was acked or failed in another way. Returns
        False if the root had already ended.
        """
        with self.lock:
            entry = self._roots.get(root)
            if entry is None:
                self._check_issued(root)
                return False
            self._forget(root, entry)
            return True

    def next_deadline_ms(self) -> int | None:
        """The time at which the next root times out; None without a deadline."""
        with self.lock:
            return self._deadlines.next_ms()

    def expire(self, now_ms: int) -> list[Outcome[M]]:
        """End every root that has a deadline of `now_ms` or earlier, in order of deadline."""
        with self.lock:
            outcomes = []
            while (root := self._deadlines.pop_due(now_ms)) is not None:
                entry = self._roots[root]
                if entry.init is None:
                    self._forget(root, entry)
                else:
                    outcomes.append(self._end(root, entry, entry.init, Ending.TIMED_OUT))
            return outcomes

    def _end(self, root: int, entry: _Root[M], init: tuple[M], ending: Ending) -> Outcome[M]:
        self._forget(root, entry)
        return Outcome(root, init[0], ending, entry.reason)

    def _forget(self, root: int, entry: _Root[M]) -> None:
        self._roots.drop(root)
        if entry.deadline_ms is not None:
            self._deadlines.discard(root)

    def _move(self, root: int, entry: _Root[M], deadline_ms: int | None) -> None:
        entry.deadline_ms = deadline_ms
        if deadline_ms is not None:
            self._deadlines.put(root, deadline_ms)
        else:
            self._deadlines.discard(root)

    def _live(self, root: int) -> _Root[M] | None:
        """None after the root's end: the event is late."""
        if (entry := self._roots.get(root)) is None:
            self._check_issued(root)
            self.late += 1
        return entry

    def _check_issued(self, root: int) -> None:
        if not self._first_root <= root < self._next_root:
            raise IllegalAckerEventError(
                f"this acker did not issue root {root}",
                "use each root only with the acker that issued it",
            )


def _later(deadline_ms: int | None, than_ms: int | None) -> bool:
    return than_ms is not None and (deadline_ms is None or deadline_ms > than_ms)


def _check(root: int, value: int) -> None:
    if value >> _EDGE_BITS:
        raise IllegalAckerEventError(
            f"the value {value:#x} for root {root} is not an XOR of {_EDGE_BITS}-bit edges",
            "pass only edges that the acker issued",
        )
