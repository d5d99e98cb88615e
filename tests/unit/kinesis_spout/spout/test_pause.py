"""A paused application: its spouts keep their place and their ownership, take outcomes, and read
nothing until the pause is over.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import DataLossError
from kinesis_spout.testing import slow
from state.retry_policy import RetryPolicy
from state.store.identity import Pause
from tests.support.spout.spout_world import SpoutUnderTest, drain, pass_time

if TYPE_CHECKING:
    from collections.abc import Iterator


PAUSE = Pause(by="ann on host-a", since_ms=0)
DAY_S = 86_400.0


@contextmanager
def paused(under_test: SpoutUnderTest) -> Iterator[None]:
    """A pause, as another process begins and ends it."""
    with closing(under_test.store()) as store:
        store.pause.begin(PAUSE)
    yield
    with closing(under_test.store()) as store:
        store.pause.end()


def test_a_paused_spout_commits_and_reads_nothing() -> None:
    """Neither new records nor retries that are due, and nothing is asked of the service. Then it
    goes on where it was.
    """
    under_test = SpoutUnderTest()
    under_test.put(4)
    retry = RetryPolicy(retry_limit=3, first_delay_ms=500, jitter=0)
    with under_test.fresh(retry=retry, prefetch_records=2) as spout:
        acked, failed, *rest = pass_time(under_test, spout, 3)
        assert len(rest) == 2
        under_test.put(3)
        with paused(under_test):
            under_test.loops.take("coordinate")
            assert spout.is_paused
            assert acked.ack()
            assert failed.fail("no")
            assert [one.ack() for one in rest] == [True, True]
            under_test.fake.faults.add(slow(0.0), times=None)
            assert pass_time(under_test, spout, 100) == []
            assert under_test.fake.faults.struck == []
            (state,) = under_test.states().values()
            assert state.checkpoint_text == acked.sequence_number
            assert [one.attempts for one in state.unresolved] == [1]
        came = pass_time(under_test, spout, 5)
        assert [one.attempt for one in came] == [2, 1, 1, 1]
        assert not spout.is_paused


def test_records_that_were_read_before_a_pause_come_after_it() -> None:
    """Also those that nothing else would hold up."""
    under_test = SpoutUnderTest()
    put = under_test.put(5)
    with under_test.fresh() as spout:
        under_test.loops.take("fetch")
        came = [spout.next_tuple() for _ in range(2)]
        with paused(under_test):
            under_test.loops.take("coordinate")
            assert spout.next_tuple() is None
        under_test.loops.take("coordinate")
        came += drain(spout, under_test.loops)
        assert [f"{one.shard_id}:{one.sequence_number}" for one in came if one] == put


def test_a_pause_beyond_the_retention_stops_the_spout_with_the_loss() -> None:
    """When it ends, and before a record comes: during the pause the spout stays."""
    under_test = SpoutUnderTest()
    under_test.put(2)
    with under_test.fresh() as spout:
        for one in pass_time(under_test, spout, 5):
            one.ack()
        with paused(under_test):
            pass_time(under_test, spout, 5)
            under_test.put(2)
            pass_time(under_test, spout, 4 * DAY_S, step_s=DAY_S)
            under_test.put(2)
        with pytest.raises(DataLossError, match="not been read for longer than the retention"):
            pass_time(under_test, spout, 5)
