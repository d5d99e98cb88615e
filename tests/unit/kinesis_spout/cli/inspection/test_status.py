"""The looks of `kinesis-spout status`, on a FakeKinesis and state in memory."""

from __future__ import annotations

from contextlib import closing

import pytest

from kinesis_spout.cli.exit_codes import CliError, StopSignals
from kinesis_spout.cli.inspection.status import look_once
from kinesis_spout.inspection.health import Health
from kinesis_spout.testing import error, throttle
from state.owner.ownership import this_process
from state.position import TRIM_HORIZON
from state.shard_state import ShardState
from state.state_store import StateChange, StreamIdentity
from tests.support.inspection.simulated_looking import looking
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard

WHOLE = {0, 1}


def track(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        store.acquire(this_process(0), timeout_s=1)
        states = [ShardState(shard_id=shard(one), read_position=TRIM_HORIZON) for one in WHOLE]
        store.save_states([StateChange(None, state) for state in states])


def test_a_record_that_is_unread_is_told_by_the_service(job: SimulatedJob) -> None:
    """With its age; the other shard is at its tip."""
    track(job)
    job.put(1, key=job.key_of(0))
    job.clock.advance(60)
    with looking(job) as looks:
        found = look_once(looks, StopSignals(), 0)
    by_id = {one.shard_id: one for one in found.shards}
    assert (by_id[shard(0)].health, by_id[shard(1)].health) == (Health.LAGGING, Health.OK)
    assert (by_id[shard(0)].lag_ms or 0) // 1000 in {59, 60}  # the service's date has seconds
    assert (by_id[shard(1)].lag_ms, by_id[shard(1)].lag_measured) == (0, True)


def test_only_so_many_shards_are_asked_and_each_once(job: SimulatedJob) -> None:
    track(job)
    job.count_calls()
    with looking(job, max_asked=1) as looks:
        found = look_once(looks, StopSignals(), 0)
    assert (job.calls("GetShardIterator"), job.calls("GetRecords")) == (1, 1)
    assert found.not_asked == 1


def test_a_throttled_shard_is_not_asked_again(job: SimulatedJob) -> None:
    """Its consumer comes first."""
    track(job)
    job.fake.faults.add(throttle(), operation="GetRecords", times=None)
    with looking(job) as looks:
        found = look_once(looks, StopSignals(), 0)
        assert looks.tips.refused is None
    assert job.calls("GetRecords") == 2
    assert found.not_asked == 2


def test_a_right_that_is_missing_ends_the_asking(job: SimulatedJob) -> None:
    """And is said. Nothing is asked in later looks either."""
    track(job)
    job.fake.faults.add(error("AccessDeniedException", "no"), operation="GetRecords", times=None)
    with looking(job) as looks:
        look_once(looks, StopSignals(), 0)
        asked = job.calls("GetRecords")
        assert looks.tips.refused is not None
        look_once(looks, StopSignals(), 0)
    assert 1 <= asked <= 2
    assert job.calls("GetRecords") == asked


def test_the_state_of_another_stream_is_refused(job: SimulatedJob) -> None:
    """Its shards have the same names, and its positions mean nothing here."""
    track(job)
    with closing(job.store()) as store:
        store.bind_stream(StreamIdentity(arn="other", name=STREAM, created_ms=1))
    with looking(job) as looks, pytest.raises(CliError, match="another stream"):
        look_once(looks, StopSignals(), 0)
