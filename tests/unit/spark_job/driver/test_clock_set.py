"""A query on machines whose clock is set while it runs. In simulated time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.simulation.world import SkewedClock
from tests.support.simulated.played_outcomes import numbered, policy, tracked
from tests.support.simulated.simulated_driver import next_plan, run_tracked, track_all

if TYPE_CHECKING:
    from kinesis_spout.testing import ManualClock
    from tests.support.simulated.simulated_job import SimulatedJob

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


@pytest.fixture
def service(one: SimulatedJob) -> ManualClock:
    """The service's clock. The clock of the job `one` can be set from now on."""
    service = one.clock
    one.clock = SkewedClock(service)  # type: ignore[assignment]  # time passes by the service's
    return service


def set_clock(one: SimulatedJob, ahead_ms: int) -> None:
    one.clock.ahead_ms = ahead_ms  # type: ignore[attr-defined]  # see `service`


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, DAY_MS], ids=["back", "forward"])
@pytest.mark.parametrize("is_available_now", [True, False])
def test_a_retry_waits_no_longer_and_no_shorter_where_the_clock_is_set_meanwhile(
    one: SimulatedJob, service: ManualClock, ahead_ms: int, *, is_available_now: bool
) -> None:
    one.put(10)
    outcomes = tracked(one, numbered(3), policy(first_delay_ms=20_000, growth=1.0, retry_limit=1))
    driver = one.coordinator(idle_wait="50s")
    if is_available_now:
        driver.prepare_available_now()
    plan = next_plan(driver)
    run_tracked(one, driver, plan, outcomes)
    failed_s = service.monotonic_s()
    driver.settle(plan)
    set_clock(one, ahead_ms)
    retry = next_plan(driver, plan)
    assert service.monotonic_s() - failed_s == pytest.approx(20, abs=1)
    rows = run_tracked(one, driver, retry, outcomes)
    assert Counter(row["attempt"] for row in rows) == {2: 1}
    assert track_all(one, driver, outcomes, retry)[1] == []
    assert len(outcomes.letters) == 1
