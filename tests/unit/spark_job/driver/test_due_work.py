"""What is due to be planned, and how long to wait for it. In simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_job.driver.due_work import DueWork
from spark_job.driver.outcome_summary import OutcomeSummary
from spark_job.driver.probe_schedule import POLL_S
from state.plan import ShardReadResult
from state.position import TRIM_HORIZON
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from tests.simulation.in_process import InlinePool
from tests.support.simulated.catalog_world import World
from tests.support.simulated.simulated_job import SimulatedJob, shard

if TYPE_CHECKING:
    import pytest

IDLE_S = 30.0


@dataclass
class Due:
    """The work of a catalog's shards, which are read from their oldest record."""

    world: World
    work: DueWork

    def look(self, waited_s: float = 0.0) -> float | None:
        return self.work.look(self.world.job.clock.monotonic_s() - waited_s)

    def read_to_the_tip(self, number: int = 1) -> None:
        """As if a plan had read the first shard up to its tip."""
        self.work.on_planned(self.world.job.clock.monotonic_s())
        self.work.on_read(
            ShardReadResult(
                shard_id=shard(0), count=1, last=SequenceNumber(number), at_tip=True, tip_ms=1
            ),
            is_of_this_run=True,
            redelivered=False,
        )


def due(job: SimulatedJob, **options: Any) -> Due:
    options = {"idle_wait": "30s", "probe_interval": "1s"} | options
    world = World(job, **options)
    world.store(
        *(
            ShardState(shard_id=one.shard_id, read_position=TRIM_HORIZON)
            for one in world.services.client.list_shards()
        )
    )
    world.refresh()
    settings = job.settings(**options)
    world.services.new_pool = InlinePool
    outcomes = OutcomeSummary(settings, world.services.store)
    outcomes.open(world.catalog.states, job.clock.now_ms())
    work = DueWork(
        settings, world.services, tips=world.watch, catalog=world.catalog, outcomes=outcomes
    )
    job.opened.append(world.services.client)
    return Due(world, work)


def test_a_shard_with_a_record_is_found_by_a_probe(one: SimulatedJob) -> None:
    found = due(one)
    assert found.look() == POLL_S
    assert (found.work.shards, found.work.is_any) == ([], False)
    one.put(1)
    one.clock.advance(1)
    assert found.look() is None
    assert (found.work.shards, found.work.is_any) == ([shard(0)], True)
    found.work.forget()
    assert not found.work.is_any


def test_a_wait_that_finds_nothing_is_over_after_idle_wait(one: SimulatedJob) -> None:
    found = due(one)
    assert found.look(IDLE_S - 0.01) is not None
    assert found.look(IDLE_S) is None
    assert not found.work.is_any


def test_shards_that_are_too_many_to_probe_are_due_at_intervals(one: SimulatedJob) -> None:
    """At once where it is not known that they are at their tips."""
    found = due(one, probe_max_shards=0, idle_interval="10s")
    assert found.look() is None
    assert found.work.shards == [shard(0)]
    found.read_to_the_tip()
    assert found.look() is not None
    one.clock.advance(10)
    assert found.look() is None


def test_an_available_now_run_is_over_once_every_shard_was_read_to_its_tip(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it looks for `maxSearchTime`, and says then what it leaves."""
    found = due(one, max_search_time="60s", probe_max_shards=0, idle_interval="1h")
    found.work.begin_available_now(1_000)
    assert (found.work.is_available_now, found.work.until_ms) == (True, 1_000)
    found.work.on_planned(one.clock.monotonic_s())
    found.world.watch.on_end(
        ShardReadResult(shard_id=shard(0), at_tip=True, tip_ms=1), 0.0, checked_s=0.0
    )
    assert found.look(59) is not None
    assert found.work.leftovers() == "it left 1 shard not read up to its start"
    assert f"not read up to its start within maxSearchTime: {shard(0)}" in caplog.text
    assert found.look(60) is None
    caplog.clear()
    found.read_to_the_tip()
    assert found.look() is None
    assert found.work.leftovers() is None
    assert caplog.text == ""


def test_another_query_leaves_nothing(one: SimulatedJob, caplog: pytest.LogCaptureFixture) -> None:
    found = due(one)
    assert (found.work.is_available_now, found.work.until_ms) == (False, None)
    found.work.waited(1)
    assert found.work.leftovers() is None
    assert caplog.text == ""


def test_records_that_are_delivered_again_count_as_not_read(one: SimulatedJob) -> None:
    """An iterator behind them would skip them, and the shard is not known to be at its tip."""
    found = due(one)
    found.read_to_the_tip()
    assert found.world.watch.is_idle(shard(0))
    end = ShardReadResult(shard_id=shard(0), at_tip=True, tip_ms=1)
    found.work.on_read(end, is_of_this_run=True, redelivered=True)
    assert not found.world.watch.is_idle(shard(0))
    found.read_to_the_tip()
    found.work.on_read(end, is_of_this_run=False, redelivered=False)
    assert not found.world.watch.is_idle(shard(0))
