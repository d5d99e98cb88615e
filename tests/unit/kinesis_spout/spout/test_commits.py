"""Outcomes that come while the spout commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.simulated.simulated_job import shard
from tests.support.spout.stepped_spout import SteppedSpout
from tests.support.state.interposed_tree import interposed

if TYPE_CHECKING:
    from tests.support.simulated.simulated_job import SimulatedJob


def test_an_outcome_during_a_commit_is_stored_by_the_next(one: SimulatedJob) -> None:
    """The state that is being written does not have it."""
    one.put(2)
    store, tree = interposed(one.store())
    spout = SteppedSpout(one, store=store)
    spout.fetch()
    first, second = spout.drain(ack=False)
    first.ack()
    tree.before_write("state", second.ack)
    for acked in (first, second):
        spout.coordinate()
        assert one.states()[shard(0)].checkpoint_text == acked.sequence_number
