from __future__ import annotations

from functools import reduce
from operator import xor
from random import Random
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.acker import Acker, Ending, Outcome
from kinesis_spout.errors import IllegalAckerEventError

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


@pytest.mark.parametrize(
    ("tell", "says"),
    [
        # of an earlier process, for example: it would be taken for another message
        (lambda acker, _: acker.fail(7), "root 7 was never issued by this acker"),
        (lambda acker, _: acker.withdraw(7), "never issued"),
        (lambda acker, _: acker.ack(7, 1), "never issued"),
        (lambda acker, _: acker.init(7, "m", 1), "never issued"),
        (lambda acker, _: acker.extend(7, 1), "never issued"),
        # no XOR of edges: it could never be cancelled, and would grow beyond constant size
        (lambda acker, root: acker.ack(root, -1), "was given .* 64 bits"),
        (lambda acker, root: acker.ack(root, 1 << EDGE_BITS), "was given .* 64 bits"),
        (lambda acker, _: acker.init(acker.issue(), "m", -1), "was given .* 64 bits"),
        (
            lambda acker, root: acker.init(root, "another", 9, deadline_ms=5),
            "got an init, but already has one",
        ),
    ],
)
def test_what_no_tree_could_mean_is_refused_and_changes_nothing(
    acker: Acker[str], tell: Callable[[Acker[str], int], object], says: str
) -> None:
    """Not the message, not the outstanding edges, not the deadline."""
    root, edge = acker.start("m", deadline_ms=10)
    with pytest.raises(IllegalAckerEventError, match=says):
        tell(acker, root)
    assert (acker.late, acker.next_deadline_ms()) == (0, 10)
    assert acker.ack(root, edge) == Outcome(root, "m", Ending.ACKED)
