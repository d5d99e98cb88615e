"""What a query tells of shards whose reads the service refuses, in simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.testing import throttle
from tests.support.simulated.simulated_driver import next_plan, one_batch
from tests.support.simulated.simulated_job import shard

if TYPE_CHECKING:
    from tests.support.simulated.simulated_job import SimulatedJob


def test_a_throttled_shard_is_told_when_its_batch_is_settled(one: SimulatedJob) -> None:
    """Until then, the task's log tells of it."""
    one.put(10)
    coordinator = one.coordinator()
    plan = next_plan(coordinator)
    one.fake.faults.add(throttle(), operation="GetRecords", times=2)
    _, found = one_batch(one, coordinator, "", plan)
    assert len(found) == 10
    (end,) = one.store().read_ends(plan).values()
    assert [read.throttled for read in end.shards] == [2]
    next_plan(coordinator, plan)
    told = one.store().read_runs()[None].throttled
    assert {name: each.count for name, each in told.items()} == {shard(0): 2}
