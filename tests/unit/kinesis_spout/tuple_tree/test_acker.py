from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import xor
from random import Random
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import IllegalAckerEventError
from kinesis_spout.tuple_tree.acker import Acker, Ending, Outcome
from tests.support.spout.tuple_trees import guarded_acker

if TYPE_CHECKING:
    from collections.abc import Callable

EDGE_BITS = 64


class Edges(Random):
    """A source of randomness that draws the given edges first, and then random ones."""

    def __init__(self, *edges: int) -> None:
        super().__init__(1)
        self.edges = list(edges)

    def getrandbits(self, k: int, /) -> int:
        return self.edges.pop(0) if k == EDGE_BITS and self.edges else super().getrandbits(k)


@pytest.fixture
def acker() -> Acker[str]:
    return Acker(Edges())


def test_a_tree_is_acked_when_all_its_tuples_are_acked(acker: Acker[str]) -> None:
    """Not before. The outcome is returned once, to the caller that ended the root."""
    root, edge = acker.start("m")
    left, right = acker.new_edge(), acker.new_edge()
    assert acker.ack(root, edge ^ left ^ right) is None
    assert acker.ack(root, right) is None
    assert acker.ack(root, left) == Outcome(root, "m", Ending.ACKED)
    assert (len(acker), acker.late) == (0, 0)


@pytest.mark.parametrize("first", ["init", "parent", "child"])
def test_acks_and_the_init_may_come_in_any_order(acker: Acker[str], first: str) -> None:
    """As messages between threads do. Only the last of them ends the root."""
    root, edge, child = acker.issue(), acker.new_edge(), acker.new_edge()
    tell: dict[str, Callable[[], Outcome[str] | None]] = {
        "init": lambda: acker.init(root, "m", edge),
        "parent": lambda: acker.ack(root, edge ^ child),
        "child": lambda: acker.ack(root, child),
    }
    order = [first, *(name for name in ("child", "parent", "init") if name != first)]
    assert [tell[name]() for name in order] == [None, None, Outcome(root, "m", Ending.ACKED)]
    assert (len(acker), acker.late) == (0, 0)


def test_a_failed_tuple_fails_the_tree_as_a_whole(acker: Acker[str]) -> None:
    """With the first reason, while other tuples are under way. Later events change nothing."""
    root, edge = acker.start("m")
    child = acker.new_edge()
    acker.ack(root, edge ^ child)
    assert acker.fail(root, "no such airport") == Outcome(
        root, "m", Ending.FAILED, "no such airport"
    )
    assert (acker.fail(root, "another"), acker.ack(root, child)) == (None, None)
    assert (len(acker), acker.late) == (0, 2)


def test_a_failure_before_the_init_is_returned_by_the_init(acker: Acker[str]) -> None:
    """Before the init the message is unknown. Acks do not undo the failure."""
    root, edge = acker.issue(), acker.new_edge()
    assert [acker.fail(root, "first"), acker.fail(root, "second"), acker.ack(root, edge)] == [
        None,
        None,
        None,
    ]
    assert acker.init(root, "m", edge) == Outcome(root, "m", Ending.FAILED, "first")
    assert len(acker) == 0


def test_a_root_times_out_at_its_exact_deadline(acker: Acker[str]) -> None:
    """Not a millisecond before. Roots end in the order of their deadlines; a root without one never
    times out.
    """
    late, soon, never = (
        acker.start(name, deadline_ms=ms)[0]
        for name, ms in (("late", 20), ("soon", 10), ("never", None))
    )
    assert acker.next_deadline_ms() == 10
    assert acker.expire(9) == []
    assert acker.expire(20) == [
        Outcome(soon, "soon", Ending.TIMED_OUT),
        Outcome(late, "late", Ending.TIMED_OUT),
    ]
    assert (acker.next_deadline_ms(), acker.expire(10**15)) == (None, [])
    assert (len(acker), never in acker) == (1, True)


def test_events_after_the_end_leave_no_entry(acker: Acker[str]) -> None:
    """No entry is made for a root that timed out: it would wait for an init that was before."""
    root, edge = acker.start("m", deadline_ms=10)
    acker.expire(10)
    assert [
        acker.ack(root, edge),
        acker.fail(root),
        acker.extend(root, 99),
        acker.withdraw(root),
    ] == [None, None, False, False]
    assert (len(acker), acker.next_deadline_ms(), acker.late) == (0, None, 3)


def test_a_deadline_can_be_extended(acker: Acker[str]) -> None:
    """By a worker that needs more time. An earlier deadline changes nothing."""
    root, _ = acker.start("m", deadline_ms=10)
    assert (acker.extend(root, 30), acker.extend(root, 20)) == (True, True)
    assert (acker.expire(29), acker.next_deadline_ms()) == ([], 30)
    assert (acker.extend(root, 31), acker.next_deadline_ms()) == (True, 31)
    assert acker.extend(root, None)
    assert (acker.expire(10**15), acker.next_deadline_ms()) == ([], None)
    assert acker.extend(root, 40)
    assert acker.next_deadline_ms() is None


@pytest.mark.parametrize(("asked_ms", "deadline_ms"), [(30, 30), (5, 10), (None, None)])
@pytest.mark.parametrize("issued_ms", [3, None])
def test_an_extension_before_the_init_counts(
    acker: Acker[str], issued_ms: int | None, asked_ms: int | None, deadline_ms: int | None
) -> None:
    """Messages may overtake each other. The root's deadline is the later of the init's and the
    extension's.
    """
    root = acker.issue(deadline_ms=issued_ms)
    assert acker.extend(root, asked_ms)
    assert acker.extend(root, 4)
    acker.init(root, "m", acker.new_edge(), deadline_ms=10)
    assert acker.next_deadline_ms() == deadline_ms


def test_the_deadline_of_the_init_replaces_that_of_the_issue(acker: Acker[str]) -> None:
    """The first is for the complete tree, the second for the init."""
    acker.init(acker.issue(deadline_ms=50), "early", acker.new_edge(), deadline_ms=10)
    assert acker.next_deadline_ms() == 10
    acker.init(acker.issue(deadline_ms=5), "never", acker.new_edge())
    assert acker.next_deadline_ms() == 10


def test_a_root_without_an_init_is_forgotten_at_its_deadline(acker: Acker[str]) -> None:
    """It has no message to return. A later init is refused; its sender has to fail the message."""
    root = acker.issue(deadline_ms=10)
    acker.ack(root, acker.new_edge())
    assert acker.expire(10) == []
    assert (len(acker), acker.core.abandoned) == (0, 1)
    with pytest.raises(
        IllegalAckerEventError, match=f"root {root} was given an init, but .* has ended"
    ):
        acker.init(root, "m", 1)
    assert len(acker) == 0


def test_a_withdrawn_root_ends_without_an_outcome(acker: Acker[str]) -> None:
    """Its message was acked or failed in another way."""
    root, edge = acker.start("m", deadline_ms=10)
    assert acker.withdraw(root)
    assert (acker.ack(root, edge), acker.expire(10), len(acker)) == (None, [], 0)


def test_a_tuple_made_of_several_clears_its_edges_in_each_root(acker: Acker[str]) -> None:
    """Multi-anchoring: one tuple, acked at each of its roots; each root ends on its own."""
    (one, first), (two, second) = acker.start("one"), acker.start("two")
    joined = [acker.new_edge(), acker.new_edge()]
    assert [acker.ack(one, first ^ joined[0]), acker.ack(two, second ^ joined[1])] == [None, None]
    assert acker.ack(one, joined[0]) == Outcome(one, "one", Ending.ACKED)
    assert acker.fail(two) == Outcome(two, "two", Ending.FAILED)


def test_a_tuple_made_of_several_of_one_root_has_the_xor_of_their_edges(acker: Acker[str]) -> None:
    """As their XOR. With one edge for both, the parents' acks would cancel it, and the root would
    be complete too early.
    """
    root, edge = acker.start("m")
    left, right = acker.new_edge(), acker.new_edge()
    of_left, of_right = acker.new_edge(), acker.new_edge()
    acks = [edge ^ left ^ right, left ^ of_left, right ^ of_right, of_left ^ of_right]
    assert [acker.ack(root, value) for value in acks] == [
        None,
        None,
        None,
        Outcome(root, "m", Ending.ACKED),
    ]


def test_a_message_without_tuples_is_acked_at_once(acker: Acker[str]) -> None:
    """It has no tuples to wait for. A message may be any value, None included."""
    root = acker.issue()
    assert acker.init(root, "m", 0) == Outcome(root, "m", Ending.ACKED)
    nothing = Acker[None]()
    root, edge = nothing.start(None)
    assert nothing.ack(root, edge) == Outcome(root, None, Ending.ACKED)


def test_zero_is_never_an_edge() -> None:
    """It would make a tuple that the tree does not wait for."""
    acker: Acker[str] = Acker(Edges(0, 0, 7))
    assert acker.new_edge() == 7


def test_equal_edges_do_not_end_a_tree_while_others_are_outstanding() -> None:
    """64 random bits may repeat. Only the XOR of all outstanding edges counts."""
    acker: Acker[str] = Acker(Edges(5, 9, 9, 3))
    root, edge = acker.start("m")
    twins, other = [acker.new_edge(), acker.new_edge()], acker.new_edge()
    assert acker.ack(root, edge ^ reduce(xor, twins) ^ other) is None
    assert [acker.ack(root, twin) for twin in twins] == [None, None]
    assert acker.ack(root, other) == Outcome(root, "m", Ending.ACKED)


def test_no_root_ends_before_its_init() -> None:
    """Not even when the early values cancel each other: two equal edges of tuples whose parents are
    not known yet.
    """
    acker: Acker[str] = Acker(Edges(9, 9, 5))
    root, twins, edge = acker.issue(), [acker.new_edge(), acker.new_edge()], acker.new_edge()
    assert [acker.ack(root, twin) for twin in twins] == [None, None]
    assert acker.init(root, "m", edge) is None
    assert acker.ack(root, edge ^ reduce(xor, twins)) == Outcome(root, "m", Ending.ACKED)


def test_no_root_is_used_twice(acker: Acker[str]) -> None:
    """However many have ended. A message that is emitted again gets a new root."""
    roots = []
    for _ in range(1_000):
        root, edge = acker.start("m")
        acker.ack(root, edge)
        roots.append(root)
    assert len(set(roots)) == 1_000
    assert roots == sorted(roots)


def test_a_root_of_another_acker_is_refused(acker: Acker[str]) -> None:
    """For example of an earlier process: it would be taken for another message. Nothing changes."""
    acker.start("m")
    foreign = Acker[str]().issue()
    for told in (
        acker.fail,
        acker.withdraw,
        lambda root: acker.ack(root, 1),
        lambda root: acker.init(root, "m", 1),
    ):
        with pytest.raises(
            IllegalAckerEventError, match=f"root {foreign} was never issued by this acker"
        ):
            told(foreign)
    with pytest.raises(IllegalAckerEventError, match="never issued"):
        acker.extend(foreign, 1)
    assert (len(acker), acker.late) == (1, 0)


@pytest.mark.parametrize("value", [-1, 1 << EDGE_BITS])
def test_a_value_that_is_not_an_xor_of_edges_is_refused(acker: Acker[str], value: int) -> None:
    """It could never be cancelled, and would grow beyond constant size. Nothing changes."""
    root, edge = acker.start("m")
    with pytest.raises(IllegalAckerEventError, match=f"root {root} was given .* 64 bits"):
        acker.ack(root, value)
    new = acker.issue()
    with pytest.raises(IllegalAckerEventError, match=f"root {new} was given .* 64 bits"):
        acker.init(new, "m", value)
    assert acker.init(new, "m", 0) is not None
    assert acker.ack(root, edge) is not None


def test_a_second_init_is_refused(acker: Acker[str]) -> None:
    """It changes nothing: not the message, not the outstanding edges, not the deadline."""
    root, edge = acker.start("m", deadline_ms=10)
    with pytest.raises(
        IllegalAckerEventError, match=f"root {root} was given an init, but has one already"
    ):
        acker.init(root, "another", acker.new_edge(), deadline_ms=5)
    assert acker.next_deadline_ms() == 10
    assert acker.ack(root, edge) == Outcome(root, "m", Ending.ACKED)


def test_the_core_is_used_under_the_lock_only() -> None:
    """The GIL hides most races, and will not be there for ever."""
    acker = guarded_acker()
    root = acker.issue()
    acker.init(root, "m", acker.new_edge(), deadline_ms=5)
    assert (len(acker), root in acker, acker.late, acker.next_deadline_ms()) == (1, True, 0, 5)
    assert (acker.extend(root, 6), acker.ack(root, 1), acker.expire(5)) == (True, None, [])
    assert (acker.fail(root) is None, acker.withdraw(acker.start("m")[0])) == (False, True)
    with pytest.raises(AssertionError):
        len(acker.core)


def test_many_threads_end_each_root_once() -> None:
    """Each thread acks its part of every tree. No outcome is lost, and no root is left."""
    threads, roots, per_thread = 8, 200, 5
    acker: Acker[int] = Acker()
    edges = [[acker.new_edge() for _ in range(threads * per_thread)] for _ in range(roots)]
    issued = [acker.issue() for _ in range(roots)]
    together = Barrier(threads)

    def tell(thread: int) -> list[Outcome[int]]:
        together.wait(timeout=30)
        outcomes = []
        for number in range(roots):
            if number % threads == thread:
                outcomes.append(acker.init(issued[number], number, reduce(xor, edges[number])))
            outcomes += [
                acker.ack(issued[number], edge)
                for edge in edges[number][thread * per_thread : (thread + 1) * per_thread]
            ]
        return [outcome for outcome in outcomes if outcome is not None]

    with ThreadPoolExecutor(threads) as pool:
        outcomes = [outcome for told in pool.map(tell, range(threads)) for outcome in told]
    assert sorted(outcomes) == [
        Outcome(issued[number], number, Ending.ACKED, None) for number in range(roots)
    ]
    assert (len(acker), acker.late) == (0, 0)
