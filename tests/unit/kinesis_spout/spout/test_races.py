"""Several threads use one spout at a time, with as many thread switches as the interpreter can
make.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from functools import partial
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.threads import ThreadLoop, thread_pool
from state.retry_policy import RetryPolicy
from tests.support.spout.spout_world import STREAM, PassingClock, SpoutUnderTest
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission
    from kinesis_spout.spout.kinesis_spout import KinesisSpout


TIMEOUT_S = 120.0


def in_thread(target: Callable[[], object]) -> Callable[[], None]:
    """Run it in a thread at once. The returned function joins it and raises what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            target()
        except BaseException as exc:  # noqa: BLE001  # `wait` raises it
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> None:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
        for error in errors:
            raise error

    return wait


def ack_all(spout: KinesisSpout) -> None:
    for emission in spout.emissions():
        emission.ack()


def test_a_thread_that_cannot_wait_passes_the_error_on() -> None:
    """Without the error, the spout would run on without this thread."""
    errors: SimpleQueue[Exception] = SimpleQueue()
    ThreadLoop.start("one", lambda: math.inf, errors.put)
    assert isinstance(errors.get(timeout=TIMEOUT_S), OverflowError)


def test_a_loop_over_emissions_ends_when_another_thread_closes_the_spout() -> None:
    """Without an error, whenever that happens; at once, however long it would wait for a record."""
    under_test = SpoutUnderTest()
    for turns in range(151):
        is_waiting = turns == 150
        spout = under_test.fresh(
            idle_wait=lambda _streak, wait_s=10 * TIMEOUT_S * is_waiting: wait_s
        )
        spout.open()
        session = spout._open_session()
        wait = in_thread(partial(ack_all, spout))
        for _ in range(turns % 10):
            spout.metrics()
        while is_waiting and not session.scheduler._waiting:
            spout.metrics()
        spout.close()
        wait()


@pytest.mark.parametrize("is_acquired", [True, False])
def test_an_interrupt_leaves_the_lock_free(
    monkeypatch: pytest.MonkeyPatch, *, is_acquired: bool
) -> None:
    """Right after a thread has acquired it, or while the thread waits for it."""
    under_test = SpoutUnderTest()
    under_test.put(2)
    with under_test.fresh() as spout:
        under_test.loops.take("fetch")
        emission = spout.next_tuple()
        assert emission is not None
        changed = spout._open_session().scheduler.changed
        acquire = changed.acquire

        def interrupted() -> None:
            if is_acquired:
                acquire()
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(changed, "acquire", interrupted)
            for call in (emission.ack, spout.next_tuple):
                with pytest.raises(KeyboardInterrupt):
                    call()
                in_thread(spout.metrics)()
        assert emission.ack()
        assert spout.next_tuple() is not None


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_a_spout_is_closed_in_a_forked_process() -> None:
    """No outcome counts there, and nothing hangs, though another thread held the lock."""
    under_test = SpoutUnderTest()
    under_test.put(1)

    def fork() -> None:
        if (child := os.fork()) == 0:
            fails = True
            try:
                fails = emission.ack() or emission.extend(5.0) or spout.is_open
                spout.close()
            finally:
                os._exit(fails)
        stopwatch = threading.Timer(20, os.kill, (child, signal.SIGKILL))
        stopwatch.start()
        status = os.waitpid(child, 0)[1]
        stopwatch.cancel()
        assert status == 0

    with under_test.fresh() as spout:
        under_test.loops.take("fetch")
        (emission,) = filter(None, [spout.next_tuple()])
        emission.tree()
        with spout._open_session().scheduler.changed:
            in_thread(fork)()
        assert emission.ack()


class Answering:
    """Threads that ack, fail or do both, some of them late, until every record is resolved."""

    def __init__(self, put: set[str]) -> None:
        self.put = put
        self.resolved: set[str] = set()
        self.done = threading.Event()
        self._work: SimpleQueue[SpoutEmission] = SimpleQueue()
        self._late: SimpleQueue[SpoutEmission] = SimpleQueue()

    def take_letter(self, letter: Letter) -> None:
        self.on_resolved(f"{letter.shard_id}:{letter.sequence_number}")

    def on_resolved(self, name: str) -> None:
        self.resolved.add(name)
        if self.resolved >= self.put:
            self.done.set()

    def hand_out(self, spout: KinesisSpout) -> None:
        for emission in spout.emissions():
            self._work.put(emission)

    def answer(self, seed: int) -> None:
        random = Random(seed)  # noqa: S311  # a test to repeat, not a secret
        while not self.done.is_set():
            if self._work.empty():
                continue
            emission = self._work.get()
            chance = random.random()
            if chance < 0.1:
                continue  # it times out
            if chance < 0.3:
                emission.fail("no")
            if chance < 0.2:
                self._late.put(emission)
            elif chance > 0.25:
                self.ack(emission)
            if chance > 0.9 and not self._late.empty():
                self.ack(self._late.get())
                emission.extend(0.01)

    def ack(self, emission: SpoutEmission) -> None:
        if emission.ack():
            self.on_resolved(f"{emission.shard_id}:{emission.sequence_number}")


def resolved(spout: KinesisSpout) -> int:
    counts = spout.metrics().total.counts
    return counts.acked + counts.dead_lettered


@pytest.mark.parametrize("seed", range(3))
def test_no_record_is_lost_or_counted_twice_with_outcomes_from_several_threads(
    seed: int,
) -> None:
    """All of the spout's own threads run too: they read, time out, dead-letter, commit and release
    shards.
    """
    under_test = SpoutUnderTest(shards=2, clock=PassingClock())
    answering = Answering(set(under_test.put(300)))
    spout = under_test.fresh(
        new_pool=thread_pool,
        start_loop=ThreadLoop.start,
        commit_interval_s=0.005,
        idle_poll_s=0.01,
        shard_refresh_interval_s=0.05,
        message_timeout_s=0.05,
        max_pending=40,
        prefetch_records=50,
        prefetch_bytes=2_000,
        retry=RetryPolicy(retry_limit=2, first_delay_ms=5, jitter=0.5),
        dead_letter=answering.take_letter,
        breaker_failures=None,
    )
    with spout:
        threads = [in_thread(lambda: answering.hand_out(spout))]
        threads += [in_thread(partial(answering.answer, 10 * seed + number)) for number in range(3)]
        parent = under_test.fake.shards(STREAM)[0].shard_id
        under_test.fake.split(STREAM, parent)
        answering.put |= set(under_test.put(300))
        answering.on_resolved("nothing")
        was_done = answering.done.wait(TIMEOUT_S)
        answering.done.set()
        # a letter is counted shortly after it was written
        wait_until(lambda: resolved(spout) >= len(answering.put))
        assert resolved(spout) == len(answering.put)
    for wait in threads:
        wait()
    assert was_done, f"{len(answering.put - answering.resolved)} records have no outcome"
    states = under_test.states()
    assert states[parent].finished
    assert all(not state.unresolved for state in states.values())
