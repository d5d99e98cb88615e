"""When a paused application is at rest, as far as what is stored shows."""

from __future__ import annotations

import pytest

from kinesis_spout.inspection.status import unrest
from state.plan import PlanStatus
from state.store.view import StoredApplication
from tests.support.inspection.looks import OWNER, after, failed, plan, shard, spout_task, state

JOB = {"owners": (OWNER,)}
SPOUTS = {"owners": (spout_task(0, 2), spout_task(1, 2)), "total_tasks": 2}
SETTLED = plan(status=PlanStatus.SETTLED)


def stored(*records: object, **given: object) -> StoredApplication:
    states = {shard(0): state(0, after(9), unresolved=tuple(records))}
    return StoredApplication(**({"states": states} | given))  # type: ignore[arg-type]  # of the test


@pytest.mark.parametrize("status", [PlanStatus.OPEN, PlanStatus.CLOSED])
def test_a_plan_that_is_not_settled_is_under_way(status: PlanStatus) -> None:
    now = stored(plan=plan(status=status), **JOB)
    assert unrest(now, now) == "the batch of plan 7-ab is not settled"


def test_a_job_whose_last_plan_is_settled_rests() -> None:
    """Also with records that wait for their retry."""
    now = stored(failed(3), plan=SETTLED, **JOB)
    assert unrest(now, now) is None
    assert unrest(stored(**JOB), stored(**JOB)) is None, "it has made no plan"


def test_what_changes_is_not_at_rest() -> None:
    """A driver that was about to plan, or a spout that commits."""
    said = "the last outcomes have just been stored"
    assert unrest(stored(**JOB), stored(plan=SETTLED, **JOB)) == said
    assert unrest(stored(failed(3), **SPOUTS), stored(**SPOUTS)) == said


def test_a_spout_whose_records_are_not_answered_does_not_rest() -> None:
    """A plan that Spark has left is none of its business."""
    pending = failed(3, first_failure_ms=None, due_ms=0, attempts=0)
    now = stored(pending, plan=plan(), **SPOUTS)
    assert unrest(now, now) == "1 record of the spout is not acked or failed yet"
    answered = stored(failed(3), plan=plan(), **SPOUTS)
    assert unrest(answered, answered) is None


def test_without_an_owner_all_rests() -> None:
    now = stored(plan=plan())
    assert unrest(stored(), now) is None
