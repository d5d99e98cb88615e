"""Which tuple trees are complete, in constant memory per tree: Storm's idea, by XOR of random
64-bit ids.

Each tuple of a tree is an *edge*, a random id. The *root* stands for the whole tree, and for the
message that it was made of. An edge is told of twice: by whoever made the tuple, and by whoever is
done with it. All that is told goes into one number per root by XOR, so an edge that was told of
twice is gone from it, in whatever order that came. Three kinds of telling:

    init(root, message, edges)   the message became these tuples: the XOR of their edges
    ack(root, value)             a tuple is done: its edge XOR the edges of the tuples that were made of it
    fail(root)                   a tuple cannot be done: the tree fails as a whole

Why zero means complete: as long as a tuple is outstanding, some edge was told of only once. The
making of a tuple is told in the ack of the tuple it was made of, so an ack that overtakes others
brings an edge along that only these, and in the end the init, can cancel. (A count of tuples would
be zero too early then.) By accident the XOR of outstanding edges is zero with a probability of
2**-64 at each ack: at a billion acks a second, once in some 585 years. More is not asked of edges:
two that are alike do no harm unless they are all that is outstanding. Only zero itself, which would
be no edge at all, is never given out. Each ack has to be told exactly once: what is told twice is
cancelled.

Early or late? An ack before the init and one after the end look the same: there is no init. So the
roots are issued here, counting up, and there is an entry from the issue until the end: what comes
for a root that was issued and has no entry is late, and leaves nothing behind. The count begins at
random, so that a root of another acker, or of an earlier process, is (almost surely) not taken for
one of these.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kinesis_spout.errors import IllegalAckerEventError
from state.collections.due_queue import DueQueue
from state.collections.shrinking_dict import ShrinkingDict

if TYPE_CHECKING:
    from random import Random

M = TypeVar("M")
"""What a root stands for: a message id, or whatever its outcome is to be told with."""

_EDGE_BITS = 64
# Roots up to 2**62 by then: there are 2**62 more before they outgrow 64 bits.
_FIRST_ROOT_BITS = 62


class Ending(Enum):
    """How a root has ended."""

    ACKED = "acked"
    FAILED = "failed"
    TIMED_OUT = "timed out"


class Outcome(NamedTuple, Generic[M]):
    """The end of a root, told exactly once. `reason` is what the one who failed it gave."""

    root: int
    message_id: M
    ending: Ending
    reason: str | None = None


class _Root(Generic[M]):
    """What is known of a root between its issue and its end."""

    __slots__ = ("asked", "deadline_ms", "failed", "init", "reason", "value")

    def __init__(self, deadline_ms: int | None) -> None:
        self.value = 0
        self.init: tuple[M] | None = (
            None  # the message, in a tuple because it may be anything, None included
        )
        self.deadline_ms = deadline_ms
        self.asked: tuple[int | None] | None = (
            None  # the latest deadline that was asked for before the init
        )
        self.failed = False
        self.reason: str | None = None


class XorLedger(Generic[M]):
    """The acker's rules. Not safe for threads, never blocks; `kinesis_spout.tuple_tree.acker.Acker`
    adds the lock.

    All that may end a root returns its outcome, or None when it goes on or has ended before. Times
    are milliseconds of any clock, the same in all calls. Init, ack and fail cost O(1), plus O(log
    n) at worst for a deadline; memory follows the number of roots between issue and end, whatever
    the size of their trees.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._first_root = random.getrandbits(_FIRST_ROOT_BITS) + 1
        self._next_root = self._first_root
        self._roots: ShrinkingDict[int, _Root[M]] = ShrinkingDict()
        self._deadlines: DueQueue[int] = DueQueue()
        self.late = 0
        """Inits aside, all that came for a root after its end; it changed nothing."""
        self.abandoned = 0
        """Roots of which no init came in time."""

    def __len__(self) -> int:
        """Roots that were issued and have not ended."""
        return len(self._roots)

    def __contains__(self, root: int) -> bool:
        return root in self._roots

    def message_of(self, root: int) -> M | None:
        """What a root between init and end stands for; None for any other."""
        entry = self._roots.get(root)
        return None if entry is None or entry.init is None else entry.init[0]

    def issue(self, *, deadline_ms: int | None = None) -> int:
        """A root that was never used before. Without an init by `deadline_ms` it is forgotten
        (None: never).
        """
        root = self._next_root
        self._next_root += 1
        self._roots[root] = _Root(deadline_ms)
        if deadline_ms is not None:
            self._deadlines.put(root, deadline_ms)
        return root

    def new_edge(self) -> int:
        """A random id for a tuple, from 1 to 2**64 - 1."""
        while not (edge := self._random.getrandbits(_EDGE_BITS)):
            pass
        return edge

    def init(
        self, root: int, message_id: M, edges: int, *, deadline_ms: int | None = None
    ) -> Outcome[M] | None:
        """Begin: `edges` is the XOR of the message's first tuples, `deadline_ms` when the root
        times out (None: never).

        Acks and fails of the root may have come before. Without edges there is nothing to wait for:
        acked. Raises `IllegalAckerEventError` for a second init, and for one that comes after the
        root was forgotten or withdrawn.
        """
        _check(root, edges)
        entry = self._roots.get(root)
        if entry is None or entry.init is not None:
            self._check_issued(root)
            raise IllegalAckerEventError(
                f"root {root} was given an init, but has had one already or has ended; issue a "
                "root of its own for each message"
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
        """Issue and init in one step, for a message that becomes one tuple: its root and edge."""
        root, edge = self.issue(deadline_ms=deadline_ms), self.new_edge()
        entry = self._roots[root]
        entry.init, entry.value = (message_id,), edge
        return root, edge

    def ack(self, root: int, value: int) -> Outcome[M] | None:
        """A tuple is done: `value` is its edge XOR the edges of the tuples that were made of it
        under this root.
        """
        entry = self._roots.get(root)
        if entry is None:
            self._late(root)
            return None
        if value >> _EDGE_BITS:
            _check(root, value)
        entry.value ^= value
        if entry.value or entry.init is None:
            return None
        return self._end(root, entry, entry.init, Ending.ACKED)

    def fail(self, root: int, reason: str | None = None) -> Outcome[M] | None:
        """The whole tree has failed; before the init it is remembered. The first reason counts."""
        entry = self._roots.get(root)
        if entry is None:
            self._late(root)
            return None
        if not entry.failed:
            entry.failed, entry.reason = True, reason
        return None if entry.init is None else self._end(root, entry, entry.init, Ending.FAILED)

    def extend(self, root: int, deadline_ms: int | None) -> bool:
        """Let the root time out at `deadline_ms` instead (None: never); an earlier one than it has
        changes nothing.

        Before the init too. False when the root has ended.
        """
        entry = self._roots.get(root)
        if entry is None:
            self._late(root)
            return False
        if _later(deadline_ms, entry.deadline_ms):
            self._move(root, entry, deadline_ms)
        if entry.init is None and (entry.asked is None or _later(deadline_ms, entry.asked[0])):
            entry.asked = (deadline_ms,)
        return True

    def withdraw(self, root: int) -> bool:
        """End the root without an outcome: its message has been answered in another way. False when
        it has ended already.
        """
        entry = self._roots.get(root)
        if entry is None:
            self._check_issued(root)
            return False
        self._forget(root, entry)
        return True

    def next_deadline_ms(self) -> int | None:
        """When the next root times out, or None."""
        return self._deadlines.next_ms()

    def expire(self, now_ms: int) -> list[Outcome[M]]:
        """End every root whose deadline is `now_ms` or earlier, in the order of the deadlines."""
        outcomes = []
        while (root := self._deadlines.pop_due(now_ms)) is not None:
            entry = self._roots[root]
            if entry.init is None:
                self.abandoned += 1
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

    def _late(self, root: int) -> None:
        self._check_issued(root)
        self.late += 1

    def _check_issued(self, root: int) -> None:
        if not self._first_root <= root < self._next_root:
            raise IllegalAckerEventError(
                f"root {root} was never issued by this acker; take roots from the acker they are "
                "told to"
            )


def _later(deadline_ms: int | None, than_ms: int | None) -> bool:
    return than_ms is not None and (deadline_ms is None or deadline_ms > than_ms)


def _check(root: int, value: int) -> None:
    if value >> _EDGE_BITS:
        raise IllegalAckerEventError(
            f"root {root} was told of {value:#x}, which is no XOR of edges: these have "
            f"{_EDGE_BITS} bits"
        )
