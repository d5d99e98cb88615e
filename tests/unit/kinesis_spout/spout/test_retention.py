"""Records that expire before a spout has read them are reported, and nothing behind them is emitted
before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import DataLossError
from tests.support.simulated.simulated_job import shard
from tests.support.spout.stepped_spout import SteppedSpout, payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.spout.emission import SpoutEmission
    from tests.support.simulated.simulated_job import SimulatedJob

HOUR_S = 3_600.0
MOST_ROUNDS = 100
SLOW: dict[str, Any] = {"prefetch_records": 1, "max_pending": 1}


def put_a_day(job: SimulatedJob) -> None:
    """Twelve records, two hours apart. The oldest one expires in an hour."""
    for number in range(12):
        job.put(1, key=job.key_of(0), data=b"record %d" % number)
        job.clock.advance(2 * HOUR_S)
    job.clock.advance(-HOUR_S)


def read_some(spout: SteppedSpout, count: int) -> list[str]:
    """Read, ack and commit one record after the other, if there are so many."""
    found: list[SpoutEmission] = []
    for _ in range(MOST_ROUNDS):
        if len(found) == count:
            break
        spout.fetch()
        if (emission := spout.spout.next_tuple()) is not None:
            found.append(emission)
            emission.ack()
        spout.coordinate()
    return payloads(found)


@pytest.mark.parametrize("end", [lambda spout: spout.spout.close(), SteppedSpout.crash])
def test_a_backlog_that_expires_soon_after_the_first_start_is_a_loss(
    one: SimulatedJob, end: Callable[[SteppedSpout], None]
) -> None:
    """While no spout runs, the records after those that were read expire."""
    put_a_day(one)
    spout = SteppedSpout(one, **SLOW)
    assert read_some(spout, 2) == ["record 0", "record 1"]
    end(spout)
    one.clock.advance(6 * HOUR_S)
    for _ in range(2):
        with pytest.raises(DataLossError, match=rf"retention of 24 h: {shard(0)}"):
            SteppedSpout(one)


def test_a_spout_that_is_overtaken_by_the_retention_stops_before_the_gap(
    one: SimulatedJob,
) -> None:
    """Its program takes too long for a record. The state stays before the gap, so the next start
    finds it, too.
    """
    put_a_day(one)
    spout = SteppedSpout(one, **SLOW)
    read_some(spout, 2)
    one.clock.advance(6 * HOUR_S)
    with pytest.raises(DataLossError, match="read after some of their records had expired"):
        read_some(spout, 10)
    spout.crash()
    with pytest.raises(DataLossError, match=rf"{shard(0)}"):
        SteppedSpout(one)
