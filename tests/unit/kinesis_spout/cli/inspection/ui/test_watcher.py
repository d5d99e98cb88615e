"""Looks in the background: one at a time, gone on with after a fault, remembered in bounds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.cli.inspection.ui.watcher import Watcher
from kinesis_spout.testing import ManualClock
from state.errors import StoreUnavailableError
from tests.support.inspection.looks import look, state
from tests.support.inspection.streams import timed

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
