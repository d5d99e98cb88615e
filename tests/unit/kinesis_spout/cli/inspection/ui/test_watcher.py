"""Looks in the background: one at a time, gone on with after a fault, remembered in bounds."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.cli.inspection.looking import MovingWindow
from kinesis_spout.cli.inspection.ui.application_pages import ApplicationPages
from kinesis_spout.cli.inspection.ui.watcher import LATE_S, MAX_SAMPLES, READER_STAYS_S, Watcher
from kinesis_spout.testing import ManualClock
from state.errors import StoreUnavailableError
from state.owner.ownership import this_process
from state.position import TRIM_HORIZON
from state.shard_state import ShardState
from state.state_store import StateChange
from tests.support.inspection.looks import look, shard, state
from tests.support.inspection.simulated_looking import looking
from tests.support.inspection.streams import timed
from tests.support.simulated.simulated_job import SimulatedJob
from tests.support.simulated.simulated_job import shard as shard_of

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look

WINDOW_S = 10.0


class MadeUpWindow:
    """Looks at once, or fails with what it is told; counts, and lets nobody in twice."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.count = 0
        self.looked = threading.Condition()
        self._alone = threading.Lock()

    def begin(self) -> None:
        pass

    def look(self) -> Look:
        assert self._alone.acquire(blocking=False), "two looks at a time"
        try:
            if self.error is not None:
                raise self.error
            return look(timed(0), state(0))
        finally:
            self._alone.release()
            with self.looked:
                self.count += 1
                self.looked.notify_all()

    def wait_for(self, count: int) -> None:
        with self.looked:
            assert self.looked.wait_for(lambda: self.count >= count, timeout=60)


def watcher_on(window: MadeUpWindow, clock: ManualClock) -> Watcher:
    return Watcher(window, window_s=WINDOW_S, clock=clock)  # type: ignore[arg-type]  # made up


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinesis_spout.cli.inspection.ui.watcher.REFRESH_S", 0.01)


def test_the_first_look_is_there_when_it_is_open_and_its_error_is_the_caller_s() -> None:
    window, clock = MadeUpWindow(), ManualClock()
    with watcher_on(window, clock) as watcher:
        assert watcher.newest().version == 1
    window.error = StoreUnavailableError("no ZooKeeper")
    with pytest.raises(StoreUnavailableError):
        watcher_on(window, clock).open()


def test_after_a_fault_the_last_good_look_stays_and_looks_go_on(quick: None) -> None:
    """Whatever the fault was; the next look that succeeds ends the trouble."""
    window, clock = MadeUpWindow(), ManualClock()
    with watcher_on(window, clock) as watcher:
        good = watcher.newest()
        for error in (StoreUnavailableError("no ZooKeeper"), RuntimeError("a bug")):
            window.error = error
            window.wait_for(window.count + 2)
            found = watcher.newest()
            assert found.trouble is not None
            assert str(error) in found.trouble.says
            assert found.look.now.states == good.look.now.states
            window.error = None
            window.wait_for(window.count + 2)
            assert watcher.newest().trouble is None


def test_a_look_that_never_ends_is_said_too() -> None:
    """It has not failed yet: a service that hangs takes long to fail."""
    clock = ManualClock()
    with watcher_on(MadeUpWindow(), clock) as watcher:
        assert watcher.newest().trouble is None
        clock.advance(WINDOW_S + LATE_S + 1)
        trouble = watcher.newest().trouble
        assert trouble is not None
        assert trouble.since_ms == pytest.approx(26_000)
        assert "does not answer" in trouble.says


def test_it_looks_once_in_the_window_while_nobody_reads() -> None:
    clock = ManualClock()
    watcher = watcher_on(MadeUpWindow(), clock)
    with watcher:
        watcher.newest()
        assert watcher._pace_s() == 2.0  # the pace is the fact; to wait for it would take long
        clock.advance(READER_STAYS_S + 1)
        assert watcher._pace_s() == WINDOW_S


def test_what_is_remembered_has_a_bound() -> None:
    window, clock = MadeUpWindow(), ManualClock()
    watcher = watcher_on(window, clock)
    for _ in range(MAX_SAMPLES + 5):
        watcher._look()  # a thread would take half an hour
    assert len(watcher.newest().samples) == MAX_SAMPLES


def test_pages_are_made_once_for_a_look() -> None:
    """Addresses of any kind have an answer, and hostile ones cost no more."""
    window, clock = MadeUpWindow(), ManualClock()
    with watcher_on(window, clock) as watcher:
        pages = ApplicationPages(watcher.newest, ())
        assert pages.answer("/").body is pages.answer("/").body
        statuses = {
            target: int(pages.answer(target).status)
            for target in (
                "/?q=%00%ff&page=99999999999999999999&span=%22",
                f"/shard/{shard(0)}",
                "/shard/0",
                "/shard/%3Cscript%3E",
                "/shard/",
                "/status.json",
                "/live.js",
                "/../etc/passwd",
                "/?" + "&".join(["a=1"] * 99),
                "http://[",
                "*",
            )
        }
        assert sorted(status for status in statuses.values()) == [200] * 5 + [400] * 2 + [404] * 4


# on a service -------------------------------------------------------------------------------------
def test_a_shard_is_asked_once_in_a_look_however_many_read(job: SimulatedJob) -> None:
    with closing(job.store()) as store:
        store.acquire(this_process(0), timeout_s=1)
        known = [ShardState(shard_id=shard_of(one), read_position=TRIM_HORIZON) for one in (0, 1)]
        store.save_states([StateChange(None, one) for one in known])
    job.count_calls()
    with looking(job) as looks:
        window = MovingWindow(looks, WINDOW_S)
        with Watcher(window, window_s=WINDOW_S, clock=job.clock) as watcher:
            pages = ApplicationPages(watcher.newest, ())
            for number in range(20):
                assert pages.answer(f"/?page={number}").status == 200
            assert job.calls("GetRecords") == 2
