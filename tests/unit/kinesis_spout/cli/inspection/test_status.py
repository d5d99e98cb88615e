"""The looks of `kinesis-spout status`, on a FakeKinesis and state in memory."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext

import pytest
from typer.testing import CliRunner

from kinesis_spout.cli.exit_codes import StopSignals
from kinesis_spout.cli.inspection import status
from kinesis_spout.cli.inspection.status import look_once
from kinesis_spout.cli.main import app
from kinesis_spout.inspection.health import Health
from kinesis_spout.inspection.status import ApplicationStatus, status_of
from kinesis_spout.testing import error, throttle
from state.position import TRIM_HORIZON
from state.process import this_process
from state.shard_state import ShardState
from state.store.shard_states import StateChange
from tests.support.inspection.looks import look
from tests.support.inspection.simulated_looking import looking
from tests.support.simulated.simulated_job import SimulatedJob, shard

WHOLE = {0, 1}


def track(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
        states = [ShardState(shard_id=shard(one), read_position=TRIM_HORIZON) for one in WHOLE]
        store.shard_states.save([StateChange(None, state) for state in states])


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


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Health.OK, 0),
        (Health.LAGGING, 0),
        (Health.PAUSED, 0),
        (Health.NOT_RUNNING, 0),
        (Health.UNKNOWN, 1),
        (Health.STALLED, 1),
        (Health.LOSING, 1),
    ],
)
def test_the_exit_code_tells_the_verdict(
    monkeypatch: pytest.MonkeyPatch, verdict: Health, code: int
) -> None:
    """A job that lags works, and a pause or an end in order is meant."""
    monkeypatch.setattr(ApplicationStatus, "verdict", verdict)
    monkeypatch.setattr(status, "looking", lambda *_, **__: nullcontext())
    monkeypatch.setattr(status, "look_once", lambda *_: status_of(look()))
    where = ("--application", "a", "--stream", "s", "--zookeeper", "127.0.0.1:1")
    ended = CliRunner().invoke(app, ["status", *where, "--json"])
    assert (ended.exit_code, json.loads(ended.stdout)["verdict"]) == (code, verdict.value)
