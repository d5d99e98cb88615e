"""A driver and its executors in simulated time: they run a coordinator's plans as Spark would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_job.driver.query_driver import QueryDriver
from spark_job.executor.task_reader import read_task
from spark_job.settings import QuerySettings

if TYPE_CHECKING:
    from spark_job.driver.coordinator import Coordinator
    from state.plan import PlanPointer
    from tests.support.simulated.played_outcomes import PlayedOutcomes, Row
    from tests.support.simulated.simulated_job import SimulatedJob


def run(job: SimulatedJob, coordinator: Coordinator, plan_id: str) -> list[int]:
    """Run a plan as executors do; the sequence numbers of its rows."""
    return [int(row["sequenceNumber"]) for row in rows_of(job, coordinator, plan_id)]


def rows_of(job: SimulatedJob, coordinator: Coordinator, plan_id: str) -> list[Row]:
    services = job.executor()
    return [
        row
        for task, plan in coordinator.tasks(plan_id).items()
        for batch in read_task(plan_id, task, plan, services=services)
        for row in batch.to_pylist()
    ]


def run_tracked(
    job: SimulatedJob, coordinator: Coordinator, plan_id: str, outcomes: PlayedOutcomes
) -> list[Row]:
    """Run a plan as executors and a tracked batch do; all its rows, processed or not."""
    rows = rows_of(job, coordinator, plan_id)
    outcomes.play(rows)
    return rows


def track_all(
    job: SimulatedJob, coordinator: Coordinator, outcomes: PlayedOutcomes, start: str = ""
) -> tuple[str, list[Row]]:
    """Run tracked batches, one at once after the other, until there is nothing new; the last plan
    and all rows.
    """
    found: list[Row] = []
    for _ in range(100):
        plan = next_plan(coordinator, start)
        if plan == start:
            return plan, found
        found += run_tracked(job, coordinator, plan, outcomes)
        start = plan
    raise AssertionError("still not at the end after 100 batches")


def next_plan(coordinator: Coordinator, start: str = "", *, max_records: int | None = None) -> str:
    """The plan that a query of this stream alone makes next."""
    driver = QueryDriver(QuerySettings.of([coordinator.settings]), [coordinator])
    offset = driver.next_offset({"format": 1, "plan": start}, max_records=max_records)
    return str(offset["plan"])


def read_all(job: SimulatedJob, coordinator: Coordinator, start: str = "") -> tuple[str, list[int]]:
    """Run batches until there is nothing new; the last plan and all sequence numbers."""
    found: list[int] = []
    for _ in range(50):
        plan = next_plan(coordinator, start)
        if plan == start:
            return plan, found
        found += run(job, coordinator, plan)
        start = plan
    raise AssertionError("still not at the end after 50 batches")


def pointer(job: SimulatedJob) -> PlanPointer:
    found = job.store().plans.pointer()
    assert found is not None
    return found


def one_batch(
    job: SimulatedJob, coordinator: Coordinator, start: str, plan: str = ""
) -> tuple[str, list[int]]:
    plan = plan or next_plan(coordinator, start)
    assert plan != start
    return plan, run(job, coordinator, plan)
