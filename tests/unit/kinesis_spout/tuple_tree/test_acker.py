from __future__ import annotations

from functools import reduce
from operator import xor
from random import Random

import pytest

from kinesis_spout.errors import IllegalAckerEventError
from kinesis_spout.tuple_tree.acker import Acker, Ending, Outcome
from tests.support.spout.tuple_trees import guarded_acker

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
