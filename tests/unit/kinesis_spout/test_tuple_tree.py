"""Tuple trees, and the acker that counts their tuples: what random trees do not meet."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from kinesis_spout.acker import Acker, Ending, Outcome
from kinesis_spout.errors import IllegalAckerEventError
from kinesis_spout.tuple_tree import (
    TrackedTuple,
    TupleTree,
    anchored_to,
    fail_timed_out,
)
from tests.support.spout.tuple_trees import RecordingSpout

if TYPE_CHECKING:
    from collections.abc import Callable


class Deaf(RecordingSpout):
    """A spout that raises at every outcome."""

    def record(self, message_id: str, outcome: str | None) -> None:
        raise ConnectionError(message_id)


@pytest.fixture
def acker() -> Acker[TupleTree]:
    return Acker()


@pytest.fixture
def told(acker: Acker[TupleTree]) -> RecordingSpout:
    return RecordingSpout(acker)


@pytest.fixture
def tree(acker: Acker[TupleTree], told: RecordingSpout) -> TupleTree:
    return TupleTree(acker, "m", told)


def test_an_exception_after_the_own_ack_still_fails_the_emission(
    tree: TupleTree, told: RecordingSpout
) -> None:
    """The rest of the block belongs to the tree while a part is under way."""
    part = tree.child()
    tree.ack()
    with pytest.raises(KeyboardInterrupt), tree:
        raise KeyboardInterrupt
    part.ack()
    assert told.outcomes == [("m", "KeyboardInterrupt")]


def test_a_part_and_an_emission_are_context_managers(
    acker: Acker[TupleTree], tree: TupleTree, told: RecordingSpout
) -> None:
    """For the worker that processes it. The end of a block changes nothing after an outcome."""
    with tree:
        good, bad = tree.child(), tree.child()
    with good:
        pass
    assert (good.answered, bad.answered, told.outcomes) == (True, False, [])
    with pytest.raises(OSError, match="disk full"), bad:
        raise OSError("disk full")
    with TupleTree(acker, "done", told) as done:
        done.ack()
    with TupleTree(acker, "bad", told) as seen:
        seen.fail("seen to be bad")
    expected = [("m", "OSError: disk full"), ("done", "acked"), ("bad", "seen to be bad")]
    assert told.outcomes == expected


@pytest.mark.parametrize("answer", ["ack", "fail"])
@pytest.mark.parametrize(
    ("event", "name"),
    [
        (TrackedTuple.ack, "was acked"),
        (TrackedTuple.fail, "was failed"),
        (TrackedTuple.child, "was given a child"),
        (lambda part: part.follow(Future()), "was given a child"),
        (lambda part: anchored_to(part.unanchored(), part), "was given a child"),
    ],
)
def test_events_after_the_outcome_of_a_tuple_are_refused(
    tree: TupleTree,
    told: RecordingSpout,
    answer: str,
    event: Callable[[TrackedTuple], object],
    name: str,
) -> None:
    """And changes nothing: one part must not get an outcome for another."""
    part, other = tree.child(), tree.child()
    tree.ack()
    getattr(part, answer)()
    before = list(told.outcomes)
    of = {"ack": "message m", "fail": f"root {tree.root}, which has ended,"}
    with pytest.raises(
        IllegalAckerEventError,
        match=f"a tuple of {of[answer]} {name} after it was {answer}ed; ack or fail each",
    ):
        event(part)
    assert told.outcomes == before
    other.ack()
    assert told.outcomes == ([("m", "acked")] if answer == "ack" else [("m", None)])


def test_trees_of_different_ackers_cannot_be_joined(tree: TupleTree, told: RecordingSpout) -> None:
    """One step cannot hold both locks. Nothing changes."""
    other = TupleTree(Acker(), "other", told)
    with pytest.raises(IllegalAckerEventError, match="only to tuples of emissions of one spout"):
        anchored_to(tree, other)
    with pytest.raises(IllegalAckerEventError, match="without tuples; use unanchored"):
        anchored_to()
    tree.ack()
    assert told.outcomes == [("m", "acked")]


def test_an_object_of_another_kind_is_refused_and_leaves_no_part_behind(
    tree: TupleTree, told: RecordingSpout
) -> None:
    with pytest.raises(IllegalAckerEventError, match="type str; pass tuples of tuple trees"):
        anchored_to(tree, cast("TrackedTuple", "m"))
    with pytest.raises(IllegalAckerEventError, match="type str; pass a future"):
        tree.follow(cast("Future[None]", "m"))
    tree.ack()
    assert told.outcomes == [("m", "acked")]


def test_a_withdrawn_tree_has_no_outcome(
    tree: TupleTree, told: RecordingSpout, acker: Acker[TupleTree]
) -> None:
    """Its emission was acked or failed in another way, for example by the spout's timeout."""
    part = tree.child()
    assert (tree.withdraw(), tree.withdraw()) == (True, False)
    part.ack()
    tree.fail()
    assert (told.outcomes, len(acker)) == ([], 0)


def test_an_exception_of_one_spout_costs_no_other_its_outcome(
    acker: Acker[TupleTree], told: RecordingSpout
) -> None:
    """The call that ended the trees raises it, after all spouts were told, and does not tell them
    again.
    """
    deaf = Deaf(acker)
    trees = [TupleTree(acker, str(number), told if number == 2 else deaf) for number in range(3)]
    with pytest.raises(ConnectionError, match="0"):
        anchored_to(trees[0], trees[2]).fail("bad")
    assert told.outcomes == [("2", "bad")]
    trees[0].ack()
    more = [TupleTree(acker, name, deaf, deadline_ms=1) for name in "ab"]
    with pytest.raises(ExceptionGroup, match="several spouts") as caught:
        fail_timed_out(acker, 1)
    assert [str(error) for error in caught.value.exceptions] == ["a", "b"]
    assert [tree.ended for tree in more] == [True, True]


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (lambda future: future.set_result(1), "acked"),
        (lambda future: future.set_exception(ValueError("bad")), "ValueError: bad"),
        (lambda future: future.cancel(), "cancelled"),
    ],
)
def test_futures_of_threads_are_followed(
    end: Callable[[Future[int]], object], outcome: str, tree: TupleTree, told: RecordingSpout
) -> None:
    """Also those that are done already. The future is returned."""
    done: Future[int] = Future()
    done.set_result(1)
    futures: list[Future[int]] = [Future(), Future()]
    with tree:
        assert tree.follow(done) is done
        for future in futures:
            tree.follow(future)
    futures[0].set_result(1)
    assert told.outcomes == []
    end(futures[1])
    assert told.outcomes == [("m", outcome)]


def test_tasks_of_asyncio_are_followed(acker: Acker[TupleTree], told: RecordingSpout) -> None:
    """As futures of threads are."""

    async def work(ready: asyncio.Event, *, bad: bool) -> None:
        await ready.wait()
        if bad:
            raise ValueError("bad")

    async def both() -> None:
        for name, bad in (("good", False), ("bad", True)):
            ready = asyncio.Event()
            with TupleTree(acker, name, told) as tree:
                tasks = [tree.follow(asyncio.ensure_future(work(ready, bad=bad)))]
            assert told.outcomes == [("good", "acked")][: int(bad)]
            ready.set()
            await asyncio.wait(tasks, timeout=30)
        with TupleTree(acker, "left", told) as tree:
            left = tree.follow(asyncio.ensure_future(asyncio.Event().wait()))
        left.cancel()
        await asyncio.wait([left], timeout=30)

    asyncio.run(both())
    assert told.outcomes == [("good", "acked"), ("bad", "ValueError: bad"), ("left", "cancelled")]
    assert len(acker) == 0


EDGE_BITS = 64


class Edges(Random):
    """A source of randomness that draws the given edges first, and then random ones."""

    def __init__(self, *edges: int) -> None:
        super().__init__(1)
        self.edges = list(edges)

    def getrandbits(self, k: int, /) -> int:
        return self.edges.pop(0) if k == EDGE_BITS and self.edges else super().getrandbits(k)


def test_zero_is_never_an_edge() -> None:
    """It would make a tuple that the tree does not wait for."""
    acker: Acker[str] = Acker(Edges(0, 0, 7))
    assert acker.new_edge() == 7


@pytest.mark.parametrize(
    ("tell", "says"),
    [
        # of an earlier process, for example: it would be taken for another message
        (lambda acker, _: acker.fail(7), "this acker did not issue root 7"),
        (lambda acker, _: acker.withdraw(7), "did not issue"),
        (lambda acker, _: acker.ack(7, 1), "did not issue"),
        (lambda acker, _: acker.init(7, "m", 1), "did not issue"),
        (lambda acker, _: acker.extend(7, 1), "did not issue"),
        # no XOR of edges: it could never be cancelled, and would grow beyond constant size
        (lambda acker, root: acker.ack(root, -1), "not an XOR of 64-bit edges"),
        (lambda acker, root: acker.ack(root, 1 << EDGE_BITS), "not an XOR of 64-bit edges"),
        (lambda acker, _: acker.init(acker.issue(), "m", -1), "not an XOR of 64-bit edges"),
        (
            lambda acker, root: acker.init(root, "another", 9, deadline_ms=5),
            "already open or has ended",
        ),
    ],
)
def test_what_no_tree_could_mean_is_refused_and_changes_nothing(
    tell: Callable[[Acker[str], int], object], says: str
) -> None:
    """Not the message, not the outstanding edges, not the deadline."""
    acker: Acker[str] = Acker(Edges())
    root, edge = acker.start("m", deadline_ms=10)
    with pytest.raises(IllegalAckerEventError, match=says):
        tell(acker, root)
    assert (acker.late, acker.next_deadline_ms()) == (0, 10)
    assert acker.ack(root, edge) == Outcome(root, "m", Ending.ACKED)
