"""What a spout does while something hangs: it commits, and it closes in time. With the threads of
production, and real time limits.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.spout.dead_letter_queue import LetterRefusedError
from kinesis_spout.spout.listener import SpoutListener
from kinesis_spout.testing import service_unavailable
from kinesis_spout.threads import DaemonPool, ThreadLoop
from state.memory_store import MemoryTree
from state.znodes.topics import StoreTopics
from tests.support.spout.gates import TIMEOUT_S, Gate, GatedService, GatedTree
from tests.support.spout.spout_world import PassingClock, SpoutUnderTest
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission
    from kinesis_spout.spout.kinesis_spout import KinesisSpout

CLOSE_TIMEOUT_S = 0.2
ALLOWED_S = CLOSE_TIMEOUT_S + 1.0


class Heard(SpoutListener):
    """`stored`: set once a commit has stored the checkpoint that is awaited. `refused`: set once a
    dead letter was refused.
    """

    def __init__(self) -> None:
        self.stored = threading.Event()
        self.refused = threading.Event()
        self.awaited: str | None = None

    def error(self, error: Exception) -> None:
        if isinstance(error, LetterRefusedError):
            self.refused.set()

    def checkpointed(self, shard_id: str, checkpoint: str | None) -> None:
        del shard_id
        if checkpoint is not None and checkpoint == self.awaited:
            self.stored.set()


class Threaded:
    """A spout with its own threads, on gated services. `gates` are opened at the end."""

    def __init__(self) -> None:
        self.listing, self.reading, self.store = Gate(), Gate(), Gate()
        self.gates = [self.listing, self.reading, self.store]
        self.world = SpoutUnderTest(
            clock=PassingClock(),
            new_service=partial(GatedService, listing=self.listing, reading=self.reading),
        )
        self.heard = Heard()

    def open(self, **options: Any) -> KinesisSpout:
        world = self.world
        tree = GatedTree(MemoryTree(world.backend), self.store)
        given: dict[str, Any] = {
            "store": StoreTopics(tree, world.store().paths, reset_command="reset"),
            "new_pool": DaemonPool,
            "start_loop": ThreadLoop.start,
            "commit_interval_s": 0.01,
            "shard_refresh_interval_s": 0.01,
            "idle_poll_s": 0.01,
            "max_idle_poll_s": 0.01,
            "close_timeout_s": CLOSE_TIMEOUT_S,
            "listeners": (self.heard,),
        }
        spout = world.fresh(**(given | options))
        spout.open()
        return spout


@pytest.fixture
def threaded() -> Iterator[Threaded]:
    one = Threaded()
    yield one
    for gate in one.gates:
        gate.open()


def taken(spout: KinesisSpout, count: int) -> list[SpoutEmission]:
    came = spout.emissions()
    return [next(came) for _ in range(count)]


def closed_in_s(spout: KinesisSpout) -> float:
    began_s = time.monotonic()
    spout.close()
    return time.monotonic() - began_s


def checkpoint_of(world: SpoutUnderTest) -> str | None:
    (state,) = world.states().values()
    return state.checkpoint_text


@pytest.mark.parametrize("hangs", ["listing", "reading"])
def test_commits_and_the_close_do_not_wait_for_a_call_that_hangs(
    threaded: Threaded, hangs: str
) -> None:
    gate = {"listing": threaded.listing, "reading": threaded.reading}[hangs]
    spout = threaded.open()
    threaded.world.put(2)
    first, second = taken(spout, 2)
    gate.shut()
    assert gate.reached.wait(TIMEOUT_S)
    threaded.heard.awaited = first.sequence_number
    first.ack()
    assert threaded.heard.stored.wait(TIMEOUT_S / 4), "no commit while a call hangs"
    second.ack()
    assert closed_in_s(spout) < ALLOWED_S
    assert checkpoint_of(threaded.world) == second.sequence_number


def test_a_backoff_ends_when_the_spout_is_closed_which_can_be_opened_again(
    threaded: Threaded, caplog: pytest.LogCaptureFixture
) -> None:
    """While Kinesis answers errors only. Else closing waits for the retries of each call."""
    spout = threaded.open()
    threaded.world.put(1)
    (emission,) = taken(spout, 1)
    emission.ack()
    threaded.world.fake.faults.add(service_unavailable(), times=1_000_000)
    wait_until(lambda: len(threaded.world.fake.faults.struck) >= 5)
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        assert closed_in_s(spout) < ALLOWED_S
    assert "requests have not ended" not in caplog.text
    assert checkpoint_of(threaded.world) == emission.sequence_number
    threaded.world.fake.faults.clear()
    spout.open()
    threaded.world.put(1)
    assert taken(spout, 1)
    spout.close()


@pytest.mark.parametrize("fault", ["errors", "no answer"])
def test_closing_ends_in_time_while_the_store_fails(
    threaded: Threaded, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """It says how many records come again."""
    spout = threaded.open(commit_interval_s=TIMEOUT_S, shard_refresh_interval_s=TIMEOUT_S)
    threaded.world.put(3)
    for emission in taken(spout, 3):
        emission.ack()
    if fault == "errors":
        threaded.world.backend.unavailable = True
    else:
        threaded.store.shut()
    with caplog.at_level(logging.WARNING, "kinesis_spout"):
        assert closed_in_s(spout) < ALLOWED_S
    assert "3 records that were acked or dead-lettered" in caplog.text
    threaded.world.backend.unavailable = False


def test_the_last_commit_comes_before_the_last_letters(threaded: Threaded) -> None:
    """And what the letters have resolved is stored by another one."""
    stored: list[str | None] = []

    def refuse_first(_letter: Letter) -> None:
        if not threaded.heard.refused.is_set():
            raise OSError("full")
        stored.append(checkpoint_of(threaded.world))

    spout = threaded.open(dead_letter=refuse_first, commit_interval_s=TIMEOUT_S)
    threaded.world.put(2)
    acked, dead = taken(spout, 2)
    dead.fail("no", retry=False)
    assert threaded.heard.refused.wait(TIMEOUT_S)
    acked.ack()
    spout.close()
    assert stored == [acked.sequence_number]
    assert checkpoint_of(threaded.world) == dead.sequence_number


class ClosesAtOnce(SpoutListener):
    """Closes the spout when its first shard has started, that is while it is opened."""

    spout: KinesisSpout | None = None

    def shard_started(self, shard_id: str) -> None:
        del shard_id
        if self.spout is not None:
            self.spout.close()


def test_a_listener_may_close_the_spout_that_is_being_opened(threaded: Threaded) -> None:
    """The opening ends, and nothing stays open."""
    listener = ClosesAtOnce()
    spout = threaded.open(listeners=(listener,), start_active=False)
    listener.spout = spout
    opening = threading.Thread(target=spout.activate, daemon=True)
    opening.start()
    opening.join(TIMEOUT_S)
    assert not opening.is_alive()
    assert not spout.is_open
    assert list(spout.emissions()) == []
    listener.spout = None
    threaded.world.put(1)
    spout.open()
    assert taken(spout, 1)
    spout.close()
