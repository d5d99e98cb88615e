"""What several threads do with one spout at a time. The switches between them are as many as the interpreter can make."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.wait_strategy import do_not_wait
from tests.support.spout_world import SpoutUnderTest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.spout import KinesisSpout

SHORTEST_SWITCH_S = 1e-6
LONGEST_S = 30.0


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORTEST_SWITCH_S)
    yield
    sys.setswitchinterval(before)


def in_thread(target: Callable[[], object]) -> Callable[[], None]:
    """Runs it in a thread at once; the answer waits for its end and raises what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            target()
        except BaseException as exc:  # noqa: BLE001  # whoever waits for it gets it
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> None:
        thread.join(LONGEST_S)
        assert not thread.is_alive()
        for error in errors:
            raise error

    return wait


def consuming(spout: KinesisSpout) -> Callable[[], None]:
    return in_thread(lambda: [emission.ack() for emission in spout.emissions()])


def test_a_loop_over_emissions_ends_when_another_thread_closes_the_spout() -> None:
    """Without an error, in whatever moment that is."""
    under_test = SpoutUnderTest()
    for turns in range(300):
        spout = under_test.fresh(idle_wait=do_not_wait)
        spout.open()
        wait = consuming(spout)
        for _ in range(turns % 10):
            spout.metrics()
        spout.close()
        wait()


def test_a_wait_for_an_emission_ends_when_the_spout_is_closed() -> None:
    """At once, however long the strategy would wait."""
    spout = SpoutUnderTest().fresh(idle_wait=lambda _streak: 10 * LONGEST_S)
    spout.open()
    session = spout._open_session()
    wait = consuming(spout)
    while not session._waiting:
        spout.metrics()
    spout.close()
    wait()
