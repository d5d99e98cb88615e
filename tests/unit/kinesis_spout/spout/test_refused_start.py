"""A start that the service refuses ends a spout before anything is stored, in simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import ConfigError
from kinesis_spout.testing import throttle
from tests.support.simulated.simulated_job import shard
from tests.support.spout.stepped_spout import SteppedSpout, payloads

if TYPE_CHECKING:
    from tests.support.simulated.simulated_job import SimulatedJob


@pytest.mark.parametrize("of", ["no stream", "another shard"])
def test_an_application_whose_first_start_was_refused_starts_from_any_other(
    job: SimulatedJob, of: str
) -> None:
    numbers = job.put(2, key=job.key_of(0)) + job.put(1, key=job.key_of(1))
    refused = 123 if of == "no stream" else numbers[0]
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf"starting_position: 'AT:{refused}' is not a pos"):
            SteppedSpout(job, starting_position=f"AT:{refused}")
    assert job.store().read_start() is None
    assert read(SteppedSpout(job, starting_position="TRIM_HORIZON")) == 3


def test_a_spout_of_some_shards_starts_at_a_number_of_these(job: SimulatedJob) -> None:
    """A spout that reads the others later reads them from their beginnings."""
    job.put(2, key=job.key_of(0))
    numbers = job.put(3, key=job.key_of(1))
    start = f"AFTER:{numbers[0]}"
    some = SteppedSpout(job, starting_position=start, shards=(shard(1),))
    assert read(some) == 2
    some.spout.close()
    assert read(SteppedSpout(job, starting_position=start)) == 2


def test_a_throttled_shard_delays_the_start_and_does_not_refuse_it(one: SimulatedJob) -> None:
    numbers = one.put(3)
    one.fake.faults.add(throttle(), operation="GetShardIterator", times=3)
    assert read(SteppedSpout(one, starting_position=f"AT:{numbers[1]}")) == 2


def read(spout: SteppedSpout) -> int:
    """How many records the spout has, each of them acked and committed."""
    found = []
    for _ in range(4):
        spout.fetch()
        while (emission := spout.spout.next_tuple()) is not None:
            emission.ack()
            found.append(emission)
        spout.coordinate()
    return len(payloads(found))
