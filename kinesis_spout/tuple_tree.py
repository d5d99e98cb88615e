"""Work that fans out from one emission: it is acked when all parts are acked, and fails when any
part fails.

    with ThreadPoolExecutor() as pool:
        for emission in spout.emissions():
            with emission.tree() as tree:     # acks the tree's own part; fails it on an exception
                for line in emission.record.data.splitlines():
                    tree.follow(pool.submit(store, line))     # acked or failed as the future ends

    part = tree.child()                       # by hand: ack or fail it once, in any thread or task
    smaller = part.child()                    # parts of parts, before `part` is acked or failed
    part.ack(), smaller.fail("no such airport")               # or `with part:`
    both = anchored_to(part_of_one_tree, part_of_another)     # a part of both trees

**The emission is acked or fails as a whole.** When one part fails, or the tree is not complete by
its deadline, the emission fails and its record is delivered again: parts that were done before are
done again. The work has to bear this, as with any delivery at least once. Outcomes that come for a
tree after it has failed are ignored; check `ended` to save the work.

A part without an outcome keeps its emission pending until the deadline. The thread that ends a tree
passes its outcome to the spout, once, after it has released the acker's lock. An exception of the
spout propagates to that thread; for a followed future it goes where the future's library reports
errors of callbacks. Handles stay in their process; futures of a process pool can be followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar

from kinesis_spout.acker import Acker, Ending, Outcome
from kinesis_spout.errors import NO_OUTCOME, IllegalAckerEventError, failure_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from concurrent.futures import Future
    from types import TracebackType

    AnyFuture = Future[Any] | asyncio.Future[Any]
    F = TypeVar("F", bound=AnyFuture)

__all__ = [
    "Acker",
    "Ending",
    "Outcome",
    "Outcomes",
    "TrackedTuple",
    "TupleTree",
    "anchored_to",
    "fail_timed_out",
]

_TIMED_OUT = "some parts of the tuple tree were not acked before the deadline"


class Outcomes(Protocol):
    """What receives the trees' outcomes: the spout. Called in the thread that ended the tree."""

    def ack(self, message_id: str) -> None:
        """All parts of the emission are acked."""
        ...

    def fail(self, message_id: str, *, reason: str | None = None, retry: bool = True) -> None:
        """The emission has failed as a whole. Without `retry`, its record is dead-lettered."""
        ...

    def extend(self, message_id: str, timeout_s: float | None) -> bool:
        """Give the emission and its tree `timeout_s` seconds from now (None: no deadline). Returns
        False if the emission already has an outcome.
        """
        ...


class TrackedTuple:
    """A part of one or more trees, to be acked or failed exactly once. Thread-safe; no method
    blocks.

    After the first `ack` or `fail`, a second one or a new child raises `IllegalAckerEventError` and
    changes nothing. As a context manager, the tuple acks itself at the end of the block, unless it
    already has an outcome. On an exception, it fails, and the exception propagates.
    `FailRecordError` (in `kinesis_spout.spout`), also as a future's exception, says whether the
    record is retried. An interrupt (`NO_OUTCOME`) that leaves the block gives no outcome: unless
    the tuple already has one, the record is redelivered.
    """

    __slots__ = ("_acker", "_edges", "_ending", "_made")

    def __init__(self, acker: Acker[TupleTree], edges: tuple[tuple[int, int], ...]) -> None:
        """Called by `child` and `anchored_to`. `edges` are pairs of a root and this tuple's edge
        under it.
        """
        self._acker = acker
        self._edges = edges
        self._made = 0  # the XOR of the children's edges; it goes into this tuple's own ack
        self._ending: Ending | None = None

    def child(self) -> TrackedTuple:
        """Return a new part derived from this one. The trees wait for it too."""
        acker = self._acker
        with acker.lock:
            if self._ending is not None:
                self._refuse("was given a child")
            edge = acker.new_edge()
            self._made ^= edge
        return TrackedTuple(acker, tuple([(root, edge) for root, _ in self._edges]))

    def unanchored(self) -> TrackedTuple:
        """Return a tuple that no tree waits for, for code that acks or fails every tuple."""
        return TrackedTuple(self._acker, ())

    def follow(self, future: F) -> F:
        """Make a child that is acked or failed when the future (of a thread pool or of asyncio)
        ends. Returns the future.

        A future that raises an error or is cancelled fails the tree. For an asyncio future, call
        `follow` in its loop's thread. Raises `IllegalAckerEventError` if the object is not a
        future.
        """
        if not hasattr(future, "add_done_callback"):
            raise IllegalAckerEventError(
                f"follow was called with an object of type {type(future).__name__}",
                "pass a future, such as the result of pool.submit(...) or "
                "asyncio.ensure_future(...)",
            )
        child = self.child()
        future.add_done_callback(child._end_as)  # noqa: SLF001  # of the same class
        return future

    def ack(self) -> None:
        """Ack the part: it is done. Its children may still be in progress."""
        self._answer(Ending.ACKED)

    def fail(self, reason: str | None = None) -> None:
        """Fail the part: every tree that it belongs to fails as a whole."""
        self._answer(Ending.FAILED, reason)

    def extend(self, timeout_s: float | None) -> bool:
        """Give the emissions of all its trees `timeout_s` seconds from now (None: no deadline).
        Returns False if all of them have ended.
        """
        with self._acker.lock:
            found = [self._acker.message_of(root) for root, _ in self._edges]
        trees = [tree for tree in found if tree is not None]
        # All of them, also after one that was extended.
        extended = [tree.outcomes.extend(tree.message_id, timeout_s) for tree in trees]
        return any(extended)

    @property
    def answered(self) -> bool:
        """Whether this part was acked or failed. Its children may still be in progress."""
        return self._ending is not None

    @property
    def ended(self) -> bool:
        """Whether all trees of this part have ended: failed, timed out or complete. The part may
        still be acked or failed.
        """
        with self._acker.lock:
            return not any(root in self._acker for root, _ in self._edges)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._answer(Ending.ACKED, is_once=False)
        elif self.answered or not isinstance(error, NO_OUTCOME):
            self._answer(Ending.FAILED, *failure_of(error), is_once=False)

    def __repr__(self) -> str:
        outcome = "not answered" if self._ending is None else self._ending.value
        return f"{type(self).__name__}({outcome}, of {len(self._edges)} trees)"

    def _end_as(self, future: AnyFuture) -> None:
        if future.cancelled():
            self.fail("cancelled")
        elif (error := future.exception()) is not None:
            self._answer(Ending.FAILED, *failure_of(error), is_once=False)
        else:
            self.ack()

    def _answer(
        self,
        ending: Ending,
        reason: str | None = None,
        retry: bool = True,  # noqa: FBT001, FBT002  # as of `failure_of`
        *,
        is_once: bool = True,
    ) -> None:
        """Ack or fail this part in all its trees. After an earlier outcome it is refused; but at
        the end of a block, where not `is_once`, an ack is left out then, and a failure fails the
        trees all the same: an exception later in the block belongs to them too.
        """
        acker, is_ack = self._acker, ending is Ending.ACKED
        with acker.lock:
            if self._ending is not None:
                if is_once:
                    self._refuse(f"was {ending.value}")
                if is_ack:
                    return
            self._ending = ending
            found = [
                acker.ack(root, edge ^ self._made) if is_ack else acker.fail(root, reason)
                for root, edge in self._edges
            ]
        if outcomes := [outcome for outcome in found if outcome is not None]:
            tell(outcomes, retry=retry)

    def _refuse(self, event: str) -> NoReturn:
        outcome = "answered" if self._ending is None else self._ending.value
        raise IllegalAckerEventError(
            f"a tuple of {self._names()} {event} after it was {outcome}",
            "ack or fail each tuple once, after you have made all its children",
        )

    def _names(self) -> str:
        """The messages of the trees, for an error. The caller holds the lock. The acker has
        forgotten the message of an ended root.
        """
        trees = [(root, self._acker.message_of(root)) for root, _ in self._edges]
        names = [
            f"root {root}, which has ended," if tree is None else f"message {tree.message_id}"
            for root, tree in trees
        ]
        return " and ".join(names) or "no tree"


class TupleTree(TrackedTuple):
    """The first tuple of an emission's tree. The deadline is set when the tree is created, so
    create it when the work begins.
    """

    __slots__ = ("message_id", "outcomes", "root")

    def __init__(
        self,
        acker: Acker[TupleTree],
        message_id: str,
        outcomes: Outcomes,
        *,
        deadline_ms: int | None = None,
    ) -> None:
        """`outcomes` gets the outcome of `message_id`. Trees time out only when `fail_timed_out` is
        called.

        Spouts whose trees are joined by `anchored_to` share one acker; each tree tells its own
        `outcomes`.
        """
        self.message_id = message_id
        self.outcomes = outcomes
        self.root, edge = acker.start(self, deadline_ms=deadline_ms)
        super().__init__(acker, ((self.root, edge),))

    def withdraw(self) -> bool:
        """End the tree without an outcome: the emission was acked or failed in another way. Returns
        False if the tree had already ended.
        """
        return self._acker.withdraw(self.root)

    def _names(self) -> str:
        return f"message {self.message_id}"


def anchored_to(*parents: TrackedTuple) -> TrackedTuple:
    """Return a part derived from several parts, of one tree or several. Its ack counts in all their
    trees; its failure fails all of them.

    Parents without a tree add nothing. Raises `IllegalAckerEventError`, and changes nothing, if
    there are no parents, if a parent is not a tuple or was already acked or failed, or if the
    parents belong to different ackers.
    """
    if not parents:
        raise IllegalAckerEventError(
            "anchored_to was called without tuples",
            "use unanchored for a tuple that belongs to no tuple tree",
        )
    for parent in parents:
        if not isinstance(parent, TrackedTuple):
            raise IllegalAckerEventError(
                f"anchored_to was called with an object of type {type(parent).__name__}",
                "pass tuples of tuple trees, such as emission.tree() or tree.child()",
            )
    acker = parents[0]._acker  # noqa: SLF001  # of the same file
    if any(parent._acker is not acker for parent in parents):  # noqa: SLF001  # of the same file
        raise IllegalAckerEventError(
            "a tuple was anchored to tuple trees of different ackers",
            "anchor a tuple only to tuples of emissions of one spout",
        )
    edges: dict[int, int] = {}
    with acker.lock:
        for parent in parents:
            if parent.answered:
                parent._refuse("was given a child")  # noqa: SLF001  # of the same file
        for parent in parents:
            edge = acker.new_edge()
            parent._made ^= edge  # noqa: SLF001  # of the same file
            for root, _ in parent._edges:  # noqa: SLF001  # of the same file
                edges[root] = edges.get(root, 0) ^ edge
    return TrackedTuple(acker, tuple(edges.items()))


def fail_timed_out(acker: Acker[TupleTree], now_ms: int) -> int:
    """Fail the emissions of all trees that have a deadline of `now_ms` or earlier. Returns their
    number. See `Acker.next_deadline_ms`.
    """
    outcomes = acker.expire(now_ms)
    tell(outcomes)
    return len(outcomes)


def tell(outcomes: Iterable[Outcome[TupleTree]], *, retry: bool = True) -> None:
    """Pass each outcome to its tree's spout. If one raises, the others are told first. `retry`:
    whether the records of failed trees are retried.
    """
    errors = []
    for outcome in outcomes:
        tree = outcome.message_id
        reason = _TIMED_OUT if outcome.ending is Ending.TIMED_OUT else outcome.reason
        try:
            if outcome.ending is Ending.ACKED:
                tree.outcomes.ack(tree.message_id)
            else:
                # `retry` only where it says something: an `Outcomes` of earlier versions lacks it.
                how = {} if retry else {"retry": False}
                tree.outcomes.fail(tree.message_id, reason=reason, **how)
        except Exception as error:  # noqa: BLE001  # an error of one spout must not cost another its outcome
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("several spouts raised errors at the end of a tuple tree", errors)
