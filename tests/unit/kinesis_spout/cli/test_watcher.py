"""Observations in the background: one at a time, continued after a fault."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import pytest

from kinesis_spout.cli.ui import Observed, Watcher
from kinesis_spout.testing import ManualClock
from state.errors import StoreUnavailableError


class MadeUp(Observed):
    """Observes at once, or fails with what it is given; counts, and lets nobody in twice."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.count = 0
        self.is_closed = False
        self.seen = threading.Condition()
        self._alone = threading.Lock()

    def observe(self) -> dict[str, Any]:
        assert self._alone.acquire(blocking=False), "two observations at a time"
        try:
            if self.error is not None:
                raise self.error
            return {"kind": "application"}
        finally:
            self._alone.release()
            with self.seen:
                self.count += 1
                self.seen.notify_all()

    def close(self) -> None:
        self.is_closed = True

    def wait_for(self, count: int) -> None:
        with self.seen:
            assert self.seen.wait_for(lambda: self.count >= count, timeout=60)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinesis_spout.cli.ui.REFRESH_S", 0.01)


def test_after_a_fault_the_last_good_observation_stays_and_others_follow(quick: None) -> None:
    """Whatever the fault was; the next one that succeeds ends the trouble."""
    made = MadeUp()
    with closing(Watcher(made, slow_s=10.0, clock=ManualClock())) as watcher:
        watcher.open()
        for error in (StoreUnavailableError("no ZooKeeper"), RuntimeError("a bug")):
            made.error = error
            made.wait_for(made.count + 2)
            found = watcher.newest()
            assert str(error) in (found.trouble or "")
            assert found.data == {"kind": "application"}
            made.error = None
            made.wait_for(made.count + 2)
            assert watcher.newest().trouble is None


def test_a_first_observation_that_fails_is_reported_and_tried_again(quick: None) -> None:
    """Of an application that a reader opens: the page is there before its data."""
    made = MadeUp()
    made.error = StoreUnavailableError("no ZooKeeper")
    watcher = Watcher(made, slow_s=10.0, clock=ManualClock())
    watcher.open(first_look=False)
    try:
        made.wait_for(2)
        assert "no ZooKeeper" in (watcher.newest().trouble or "")
        assert watcher.newest().data is None
        made.error = None
        made.wait_for(made.count + 2)
        assert watcher.newest().data == {"kind": "application"}
    finally:
        assert watcher.close()
    assert made.is_closed
