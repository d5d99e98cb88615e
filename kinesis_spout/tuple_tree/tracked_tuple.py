"""Work that fans out from one emission: it is acked when all that was made of it is done, and
failed when any of that fails.

    with ThreadPoolExecutor() as pool:
        for emission in spout.emissions():
            with emission.tree() as tree:                     # leaving the block acks the tree's own part, an exception fails it
                for line in emission.record.data.splitlines():
                    tree.follow(pool.submit(store, line))     # acked or failed as the future ends

    part = tree.child()                                       # or by hand: a part to be answered once, from any thread or task
    smaller = part.child()                                    # parts of parts, before the own answer
    part.ack(), smaller.fail("no such airport")               # or `with part:`
    both = anchored_to(part_of_one_tree, part_of_another)     # made of several: answered in all of their trees at once

**The emission stands or falls as a whole.** When one part fails, or the tree is not complete by its
deadline, the emission fails, and its record is emitted again as a whole: parts that were done
before are done again. What the parts do has to bear this, as with any delivery at least once. What
is still told of a tree that has failed is ignored; `ended` spares the work.

A part that is never answered keeps its emission pending until the deadline. An outcome is told
once, by the thread that brought it about, after the acker's lock is released; what the spout raises
comes out of that call (of a followed future: goes to where its library reports errors of
callbacks). Handles stay in their process; futures of a process pool can be followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar

from kinesis_spout.errors import IllegalAckerEventError
from kinesis_spout.tuple_tree.xor_ledger import Ending, Outcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from concurrent.futures import Future
    from types import TracebackType

    from kinesis_spout.tuple_tree.acker import Acker

    AnyFuture = Future[Any] | asyncio.Future[Any]
    F = TypeVar("F", bound=AnyFuture)

_TIMED_OUT = "its tuple tree was not complete by the deadline"


class Outcomes(Protocol):
    """Who is told of a tree's end: the spout. Called from whatever thread brought the end about."""

    def ack(self, message_id: str) -> None:
        """All that was made of the emission is done."""
        ...

    def fail(self, message_id: str, *, reason: str | None = None) -> None:
        """The emission has failed as a whole."""
        ...


class TrackedTuple:
    """A part of one or more trees, to be answered exactly once by `ack` or `fail`. Any thread may
    call; nothing blocks.

    A second answer, and a child after the own answer, raise `IllegalAckerEventError` and change
    nothing. As a context manager it acks itself at the end of the block unless it was answered
    before, and fails on an exception, which goes on.
    """

    __slots__ = ("_acker", "_answer", "_edges", "_made")

    def __init__(self, acker: Acker[TupleTree], edges: tuple[tuple[int, int], ...]) -> None:
        """For `child` and `anchored_to`: `edges` are this tuple's roots, with the edge that is told
        of under each.
        """
        self._acker = acker
        self._edges = edges
        self._made = 0  # the XOR of the edges of what was made of this tuple, told with its own ack
        self._answer: Ending | None = None

    def child(self) -> TrackedTuple:
        """A part that was made of this one: the trees wait for it too."""
        acker = self._acker
        with acker.lock:
            if self._answer is not None:
                self._refuse("was given a child")
            edge = acker.core.new_edge()
            self._made ^= edge
        return TrackedTuple(acker, tuple([(root, edge) for root, _ in self._edges]))

    def unanchored(self) -> TrackedTuple:
        """A tuple of the same make that no tree waits for, for code that answers whatever it is
        given.
        """
        return TrackedTuple(self._acker, ())

    def follow(self, future: F) -> F:
        """A child that is acked or failed as the future (of a thread pool or of asyncio) ends.
        Returns the future.

        A future that raises or is cancelled fails the tree. Those of asyncio have to be given in
        the thread of their loop.
        """
        child = self.child()
        future.add_done_callback(child._answer_as)  # noqa: SLF001  # of the same class
        return future

    def ack(self) -> None:
        """The part itself is done; what was made of it may go on."""
        with self._acker.lock:
            if self._answer is not None:
                self._refuse("was acked")
            outcomes = self._ack()
        if outcomes:
            tell(outcomes)

    def fail(self, reason: str | None = None) -> None:
        """The part cannot be done: every tree it belongs to fails as a whole."""
        with self._acker.lock:
            if self._answer is not None:
                self._refuse("was failed")
            outcomes = self._fail(reason)
        tell(outcomes)

    def extend(self, deadline_ms: int | None) -> bool:
        """Let the trees time out at `deadline_ms` instead (None: never) where that is later. False
        when all of them have ended.

        This is the tree's own deadline; a spout that has another one for the emission has to be
        told itself.
        """
        with self._acker.lock:
            extended = [self._acker.core.extend(root, deadline_ms) for root, _ in self._edges]
        return any(extended)

    @property
    def answered(self) -> bool:
        """Whether this part was acked or failed; what was made of it may still be under way."""
        return self._answer is not None

    @property
    def ended(self) -> bool:
        """Whether no tree waits for this part any more: all have failed, timed out or are complete.
        It may still be answered.
        """
        with self._acker.lock:
            return not any(root in self._acker.core for root, _ in self._edges)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._fail_with(error)
        else:
            with self._acker.lock:
                outcomes = self._ack() if self._answer is None else []
            tell(outcomes)

    def __repr__(self) -> str:
        answer = "not answered" if self._answer is None else self._answer.value
        return f"{type(self).__name__}({answer}, of {len(self._edges)} trees)"

    def _answer_as(self, future: AnyFuture) -> None:
        if future.cancelled():
            self.fail("cancelled")
        elif (error := future.exception()) is not None:
            self._fail_with(error)
        else:
            self.ack()

    def _fail_with(self, error: BaseException) -> None:
        """Also where the own part was answered: what comes after the answer belongs to the tree as
        well.
        """
        with self._acker.lock:
            outcomes = self._fail(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            )
        tell(outcomes)

    def _ack(self) -> list[Outcome[TupleTree]]:
        self._answer = Ending.ACKED
        ack, made = self._acker.core.ack, self._made
        return [
            outcome for root, edge in self._edges if (outcome := ack(root, edge ^ made)) is not None
        ]

    def _fail(self, reason: str | None) -> list[Outcome[TupleTree]]:
        self._answer = Ending.FAILED
        return [
            outcome
            for root, _ in self._edges
            if (outcome := self._acker.core.fail(root, reason)) is not None
        ]

    def _refuse(self, event: str) -> NoReturn:
        answer = "answered" if self._answer is None else self._answer.value
        raise IllegalAckerEventError(
            f"a tuple of {self._names()} {event} after it was {answer}; answer each tuple once, "
            "when all that was made of it "
            "has a handle of its own"
        )

    def _names(self) -> str:
        """For an error, with the lock held. An acker does not know what an ended root stood for."""
        trees = [(root, self._acker.core.message_of(root)) for root, _ in self._edges]
        names = [
            f"root {root}, which has ended," if tree is None else f"message {tree.message_id}"
            for root, tree in trees
        ]
        return " and ".join(names) or "no tree"


class TupleTree(TrackedTuple):
    """The first tuple of an emission's tree. It exists, and times out, from being made on: make it
    when the work begins.
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
        """`outcomes` is told of the end of `message_id`; for the time-out someone has to call
        `fail_timed_out`.

        Spouts whose trees are to be joined by `anchored_to` share one acker; each tree tells its
        own `outcomes`.
        """
        self.message_id = message_id
        self.outcomes = outcomes
        self.root, edge = acker.start(self, deadline_ms=deadline_ms)
        super().__init__(acker, ((self.root, edge),))

    def withdraw(self) -> bool:
        """End the tree without telling anybody: the emission was answered in another way. False
        when it has ended before.
        """
        return self._acker.withdraw(self.root)

    def _names(self) -> str:
        return f"message {self.message_id}"


def anchored_to(*parents: TrackedTuple) -> TrackedTuple:
    """A part that was made of several, of one tree or of several: acked once, it is done in all of
    them; failed, all fail.

    Parents that no tree waits for add nothing. Raises `IllegalAckerEventError`, and changes
    nothing, without parents, when one of them was answered, or when they belong to different
    ackers.
    """
    if not parents:
        raise IllegalAckerEventError(
            "anchored_to was given no tuples; use unanchored for one that no tree waits for"
        )
    acker = parents[0]._acker  # noqa: SLF001  # of the same file
    if any(parent._acker is not acker for parent in parents):  # noqa: SLF001  # of the same file
        raise IllegalAckerEventError(
            "a tuple was anchored to trees of different ackers; give their spouts one acker in "
            "common"
        )
    edges: dict[int, int] = {}
    with acker.lock:
        for parent in parents:
            if parent.answered:
                parent._refuse("was given a child")  # noqa: SLF001  # of the same file
        for parent in parents:
            edge = acker.core.new_edge()
            parent._made ^= edge  # noqa: SLF001  # of the same file
            for root, _ in parent._edges:  # noqa: SLF001  # of the same file
                edges[root] = edges.get(root, 0) ^ edge
    return TrackedTuple(acker, tuple(edges.items()))


def fail_timed_out(acker: Acker[TupleTree], now_ms: int) -> int:
    """Fail the emissions of all trees whose deadline is `now_ms` or earlier; their number. See
    `Acker.next_deadline_ms`.
    """
    outcomes = acker.expire(now_ms)
    tell(outcomes)
    return len(outcomes)


def tell(outcomes: Iterable[Outcome[TupleTree]]) -> None:
    """Tell each tree's spout. When one raises, the others are told first."""
    errors = []
    for outcome in outcomes:
        try:
            _tell_one(outcome)
        except Exception as error:  # noqa: BLE001  # one spout's fault must not cost another its outcome
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("several spouts could not take the outcome of a tuple tree", errors)


def _tell_one(outcome: Outcome[TupleTree]) -> None:
    tree = outcome.message_id
    if outcome.ending is Ending.ACKED:
        tree.outcomes.ack(tree.message_id)
    else:
        tree.outcomes.fail(
            tree.message_id,
            reason=_TIMED_OUT if outcome.ending is Ending.TIMED_OUT else outcome.reason,
        )
