from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import IllegalAckerEventError
from kinesis_spout.tuple_tree.acker import Acker
from kinesis_spout.tuple_tree.tracked_tuple import (
    TrackedTuple,
    TupleTree,
    anchored_to,
    fail_timed_out,
)
from tests.support.spout.tuple_trees import TIMED_OUT, RecordingSpout, guarded_acker

if TYPE_CHECKING:
    from collections.abc import Callable


class Deaf(RecordingSpout):
    """A spout that raises at every outcome."""

    def record(self, message_id: str, outcome: str | None) -> None:
        raise ConnectionError(message_id)


@pytest.fixture
def acker() -> Acker[TupleTree]:
    return guarded_acker()


@pytest.fixture
def told(acker: Acker[TupleTree]) -> RecordingSpout:
    return RecordingSpout(acker)


@pytest.fixture
def tree(acker: Acker[TupleTree], told: RecordingSpout) -> TupleTree:
    return TupleTree(acker, "m", told)


def test_a_tree_without_parts_is_acked_at_the_end_of_its_block(
    tree: TupleTree, told: RecordingSpout
) -> None:
    """And not before."""
    with tree as entered:
        assert entered is tree
        assert told.outcomes == []
    assert told.outcomes == [("m", "acked")]


def test_the_emission_is_acked_with_its_last_part(
    tree: TupleTree, told: RecordingSpout, acker: Acker[TupleTree]
) -> None:
    """Parts of parts too, in any order."""
    with tree:
        part = tree.child()
        smaller = part.child()
        smallest = smaller.child()
    for one in (smaller, smallest):
        one.ack()
        assert told.outcomes == []
    part.ack()
    assert told.outcomes == [("m", "acked")]
    assert len(acker) == 0


def test_a_failed_part_fails_the_emission_as_a_whole(
    tree: TupleTree, told: RecordingSpout, acker: Acker[TupleTree]
) -> None:
    """At once and once. Later outcomes of other parts are not errors, and change nothing."""
    with tree:
        parts = [tree.child() for _ in range(4)]
    parts[0].ack()
    parts[1].fail("no such airport")
    assert (told.outcomes, parts[2].ended, len(acker)) == ([("m", "no such airport")], True, 0)
    parts[2].child().ack()
    parts[2].ack()
    parts[3].fail("another")
    assert (told.outcomes, len(acker)) == ([("m", "no such airport")], 0)


def test_an_exception_in_the_block_fails_the_emission_and_propagates(
    tree: TupleTree, told: RecordingSpout
) -> None:
    """With the exception as the reason."""
    tree.child()
    with pytest.raises(ValueError, match="bad line"), tree:
        raise ValueError("bad line")
    assert told.outcomes == [("m", "ValueError: bad line")]


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


def test_the_end_of_a_block_changes_nothing_after_an_outcome(
    acker: Acker[TupleTree], told: RecordingSpout
) -> None:
    """Whether it was acked or failed."""
    with TupleTree(acker, "done", told) as done:
        part = done.child()
        done.ack()
    part.ack()
    assert told.outcomes == [("done", "acked")]
    with TupleTree(acker, "bad", told) as bad:
        bad.fail("seen to be bad")
    assert told.outcomes == [("done", "acked"), ("bad", "seen to be bad")]


def test_a_part_is_a_context_manager(tree: TupleTree, told: RecordingSpout) -> None:
    """For the worker that processes it."""
    with tree:
        good, bad = tree.child(), tree.child()
    with good:
        pass
    assert (good.answered, bad.answered, told.outcomes) == (True, False, [])
    with pytest.raises(OSError, match="disk full"), bad:
        raise OSError("disk full")
    assert told.outcomes == [("m", "OSError: disk full")]


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


def test_misuse_of_a_tree_names_its_message(tree: TupleTree, told: RecordingSpout) -> None:
    """A root means nothing to the user. A tuple without trees has no name."""
    tree.ack()
    with pytest.raises(
        IllegalAckerEventError, match="a tuple of message m was acked after it was acked"
    ):
        tree.ack()
    free = tree.unanchored()
    free.fail()
    with pytest.raises(
        IllegalAckerEventError, match="a tuple of no tree was acked after it was failed"
    ):
        free.ack()
    assert told.outcomes == [("m", "acked")]


def test_a_part_of_several_trees_is_acked_in_all_of_them(acker: Acker[TupleTree]) -> None:
    """Each tree tells its own spout when it is complete."""
    here, there = RecordingSpout(acker), RecordingSpout(acker)
    one, two = TupleTree(acker, "one", here), TupleTree(acker, "two", there)
    of_two = two.child()
    joined = anchored_to(one, of_two)
    of_joined = joined.child()
    for done in (one, two, joined, of_joined):
        done.ack()
    assert (here.outcomes, there.outcomes) == ([("one", "acked")], [])
    of_two.ack()
    assert there.outcomes == [("two", "acked")]


def test_a_part_of_several_trees_fails_all_of_them(
    acker: Acker[TupleTree], told: RecordingSpout
) -> None:
    """A tree that the part does not belong to goes on."""
    one, two, three = (TupleTree(acker, name, told) for name in ("one", "two", "three"))
    anchored_to(one, two).fail("no match")
    assert told.outcomes == [("one", "no match"), ("two", "no match")]
    assert [tree.ended for tree in (one, two, three)] == [True, True, False]


def test_a_part_made_of_several_parts_of_one_tree_counts_once(
    tree: TupleTree, told: RecordingSpout
) -> None:
    """Or of one part twice: the tree waits for it, and is complete with its ack."""
    left, right = tree.child(), tree.child()
    joined = anchored_to(left, right, right)
    for done in (tree, left, right):
        done.ack()
    assert told.outcomes == []
    joined.ack()
    assert told.outcomes == [("m", "acked")]


def test_no_tree_waits_for_an_unanchored_tuple(tree: TupleTree, told: RecordingSpout) -> None:
    """Nor for its children. It can be acked or failed as any other tuple."""
    free = tree.unanchored()
    of_free = anchored_to(free, free.child())
    tree.ack()
    assert told.outcomes == [("m", "acked")]
    of_free.fail("no tree waits for it")
    free.ack()
    assert (told.outcomes, free.ended, free.extend(10)) == ([("m", "acked")], True, False)


def test_trees_of_different_ackers_cannot_be_joined(tree: TupleTree, told: RecordingSpout) -> None:
    """One step cannot hold both locks. Nothing changes."""
    other = TupleTree(Acker(), "other", told)
    with pytest.raises(IllegalAckerEventError, match="let their spouts share one acker"):
        anchored_to(tree, other)
    with pytest.raises(IllegalAckerEventError, match="no tuples; use unanchored"):
        anchored_to()
    tree.ack()
    assert told.outcomes == [("m", "acked")]


def test_a_tree_that_is_not_complete_by_its_deadline_fails(
    acker: Acker[TupleTree], told: RecordingSpout
) -> None:
    """At the exact time. Later events leave no entry."""
    tree = TupleTree(acker, "m", told, deadline_ms=10)
    part = tree.child()
    tree.ack()
    assert (fail_timed_out(acker, 9), told.outcomes) == (0, [])
    assert (fail_timed_out(acker, 10), told.outcomes) == (1, [("m", TIMED_OUT)])
    part.child().fail()
    part.ack()
    assert (told.outcomes, len(acker), acker.next_deadline_ms()) == ([("m", TIMED_OUT)], 0, None)


def test_a_part_can_extend_its_emissions(acker: Acker[TupleTree], told: RecordingSpout) -> None:
    """Of all of its trees, except those that have ended. The spout has the clock."""
    one, two = (TupleTree(acker, name, told) for name in ("one", "two"))
    joined = anchored_to(one, two)
    one.fail()
    assert joined.extend(20.0)
    assert told.extended == [("two", 20.0)]
    two.fail()
    assert not joined.extend(30.0)


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


def test_of_two_outcomes_at_the_same_time_one_is_refused() -> None:
    """The tree gets one of them; the other raises in its own thread."""
    acker: Acker[TupleTree] = Acker()
    told = RecordingSpout(acker)
    rounds, together = 200, Barrier(2)
    trees = [TupleTree(acker, str(number), told) for number in range(rounds)]

    def answer(name: str) -> int:
        refused = 0
        for tree in trees:
            together.wait(timeout=30)
            try:
                getattr(tree, name)()
            except IllegalAckerEventError:
                refused += 1
        return refused

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(answer, ("ack", "fail"))) == rounds
    assert sorted(message_id for message_id, _ in told.outcomes) == sorted(
        str(number) for number in range(rounds)
    )


def test_the_repr_shows_the_outcome_and_the_number_of_trees(tree: TupleTree) -> None:
    """For example in a log."""
    part = anchored_to(tree, tree.child())
    part.ack()
    assert (repr(tree), repr(part)) == (
        "TupleTree(not answered, of 1 trees)",
        "TrackedTuple(acked, of 1 trees)",
    )
