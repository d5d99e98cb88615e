"""Reading ahead of many shards: rotation, budgets, bounds and failures, with scripted getters; and
pacing within a shard's read limits.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Executor, Future
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.config import ReadRate
from kinesis_spout.errors import AccessDeniedError, KinesisError
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.page import Page
from kinesis_spout.reading.read_ahead import (
    RESERVED_PAGE_BYTES,
    BufferedGetter,
    ByteBudget,
    RoundRobinReader,
)
from kinesis_spout.testing import ManualClock
from tests.support.spout import spout_pages

LIMIT_S = 20.0


ROOMY = 100 * RESERVED_PAGE_BYTES


def page_of(shard_id: str, count: int = 1, *, ended: bool = False) -> Page:
    return spout_pages.page_of(range(count), shard_id=shard_id, ended=ended, size=12)


def reader_of(
    getters: list[BufferedGetter], max_concurrent: int = 1, **given: Any
) -> RoundRobinReader:
    clock = given.pop("clock", None) or ManualClock()
    return RoundRobinReader(getters, max_concurrent=max_concurrent, clock=clock, **given)


class ScriptedGetter:
    """Fetches by `script`, whose last step is repeated: a number of records, an error to raise, a
    page, or an event to wait for.
    """

    def __init__(
        self,
        shard_id: str,
        *script: int | Page | KinesisError | threading.Event,
        log: list[str] | None = None,
    ) -> None:
        self.shard_id = shard_id
        self.script = deque(script or (1,))
        self.log = log if log is not None else []
        self.due_s = 0.0

    def ready_at_s(self) -> float:
        return self.due_s

    def fetch_unless_throttled(self, limit: int) -> Page:
        self.log.append(self.shard_id)
        step = self.script.popleft() if len(self.script) > 1 else self.script[0]
        if isinstance(step, threading.Event):
            assert step.wait(LIMIT_S)
            step = 1
        if isinstance(step, KinesisError):
            raise step
        return step if isinstance(step, Page) else page_of(self.shard_id, min(step, limit))


def buffered(
    getter: ScriptedGetter,
    *,
    max_records: int = 100,
    budget: ByteBudget | None = None,
    total_records: int | None = None,
) -> BufferedGetter:
    return BufferedGetter(
        getter,
        max_records=max_records,
        budget=budget or ByteBudget(ROOMY),
        total_records=total_records,
    )


def fetched(getter: BufferedGetter) -> Page:
    """The page of one more fetch."""
    reserved_bytes = getter.try_reserve()
    assert reserved_bytes
    return getter.fetch(reserved_bytes)


def shards_of(getters: list[BufferedGetter]) -> list[str]:
    return [getter.shard_id for getter in getters]


def test_a_page_that_was_replaced_is_not_dropped_in_the_place_of_its_successor() -> None:
    """Another thread has fetched between the look at the empty page and its removal."""
    getter = buffered(ScriptedGetter("a", 0, 2))
    empty = fetched(getter)
    assert getter.first() is empty
    page = fetched(getter)
    assert not getter.drop(empty)
    assert getter.take() is page


def test_a_failed_fetch_gives_its_reservation_back() -> None:
    """Otherwise failures would use the budget up. A demand stands: its page is still waited for."""
    budget = ByteBudget(1)
    getter = buffered(ScriptedGetter("a", AccessDeniedError("no"), 1), budget=budget)
    getter.close()
    getter.demand()
    with pytest.raises(AccessDeniedError):
        fetched(getter)
    assert budget.try_reserve()
    budget.settle(0)
    assert getter.wants_fetch
    assert fetched(getter).count == 1


def test_the_page_of_a_fetch_that_was_in_flight_when_the_buffer_started_over_is_dropped() -> None:
    """The new getter reads these records again, and none may come twice. The page holds no bytes
    and does not count. The tip, the end, and that the shard was gone are forgotten.
    """
    budget = ByteBudget(ROOMY)
    release = threading.Event()
    old = AnnouncingGetter("a", release)
    getter = buffered(old, budget=budget, total_records=8)
    fetching = threading.Thread(target=fetched, args=(getter,))
    fetching.start()
    assert old.begun.wait(LIMIT_S)
    getter.start_over(ScriptedGetter("a", 4))
    getter.demand()
    release.set()
    fetching.join(LIMIT_S)
    assert (getter.pages(), getter.buffered_records, budget.held_bytes) == ([], 0, 0)
    assert getter.is_demanded
    assert fetched(getter).count == 4
    getter.start_over(ScriptedGetter("a", Page(shard_id="a", gone=True)))
    fetched(getter)
    assert getter.is_over
    getter.start_over(ScriptedGetter("a", 3))
    assert (getter.is_over, getter.last_page, getter.wants_fetch) == (False, None, True)


def test_a_shard_that_must_wait_is_skipped_and_delays_no_other() -> None:
    """It gets its turn when it is due, and the wait for it is on the clock."""
    log: list[str] = []
    clock = ManualClock()
    slow = ScriptedGetter("slow", log=log)
    slow.due_s = 7.0
    getters = [
        buffered(slow, max_records=1),
        *(buffered(ScriptedGetter(name, log=log), max_records=2) for name in "ab"),
    ]
    with reader_of(getters, clock=clock) as reader:
        for _ in range(4):
            reader.step(LIMIT_S)
        assert (log, clock.monotonic_s(), reader.idle) == (list("abab"), 0.0, False)
        assert reader.step(2.0) == []
        assert clock.monotonic_s() == 2.0
        assert shards_of(reader.step(LIMIT_S)) == ["slow"]
        assert (clock.monotonic_s(), reader.idle) == (7.0, True)


def test_a_shard_without_budget_is_the_first_to_get_some() -> None:
    """The order of the shards must not decide which one is read."""
    log: list[str] = []
    budget = ByteBudget(1)
    getters = [buffered(ScriptedGetter(name, log=log), budget=budget) for name in "abc"]
    with reader_of(getters, 3) as reader:
        for name in "abcab":
            assert shards_of(reader.step(LIMIT_S)) == [name]
            assert reader.idle
            for getter in getters:
                getter.take()


def test_the_first_error_is_raised_after_the_other_fetches_have_completed() -> None:
    """Their pages are in the buffers, and no fetch is in flight any more."""
    release = threading.Event()
    slow = buffered(ScriptedGetter("slow", release), max_records=1)
    failing = buffered(ScriptedGetter("bad", AccessDeniedError("no")))
    with reader_of([slow, failing], 2) as reader:
        threading.Timer(0.05, release.set).start()
        with pytest.raises(AccessDeniedError):
            reader.step(LIMIT_S)
    assert slow.buffered_records == 1


class AnnouncingGetter(ScriptedGetter):
    """Says when its fetch has begun."""

    def __init__(self, shard_id: str, *script: threading.Event) -> None:
        super().__init__(shard_id, *script)
        self.begun = threading.Event()

    def fetch_unless_throttled(self, limit: int) -> Page:
        self.begun.set()
        return super().fetch_unless_throttled(limit)


@pytest.mark.parametrize("error", [None, GeneratorExit])
def test_leaving_the_reader_waits_for_fetches_in_flight_unless_by_an_exception(
    error: type[BaseException] | None,
) -> None:
    """Positions and buffers agree afterwards. Of a generator that is closed early, say, nobody
    needs the pages any more.
    """
    release = threading.Event()
    announcing = AnnouncingGetter("a", release)
    getter = buffered(announcing, max_records=1)
    with suppress(GeneratorExit), reader_of([getter]) as reader:
        assert reader.step(0.0) == []
        assert announcing.begun.wait(LIMIT_S)
        if error is not None:
            raise error
        release.set()
    assert getter.buffered_records == (error is None)
    release.set()


class PoolWithoutThreads(Executor):
    """A pool whose threads have not begun any call yet. Its shutdown cancels, as a thread pool's
    does: nobody notifies those who wait for such a future.
    """

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, *_call: Any, **_arguments: Any) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # the executor's own signature
        del wait
        if cancel_futures:
            for future in self.futures:
                future.cancel()


def test_leaving_the_reader_does_not_wait_for_fetches_that_never_began() -> None:
    """They give their reservations back. Waiting for them would never end: closing a spout, or a
    task, would hang.
    """
    budget = ByteBudget(1)
    getter = buffered(ScriptedGetter("a"), budget=budget)

    def leave_at_once() -> None:
        with reader_of([getter], new_pool=lambda *_: PoolWithoutThreads()) as reader:
            assert reader.step(0.0) == []
            assert not budget.try_reserve()

    leaving = threading.Thread(target=leave_at_once, daemon=True)
    leaving.start()
    leaving.join(LIMIT_S)
    assert not leaving.is_alive()
    assert budget.try_reserve()


@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300), st.booleans())),
)
def test_a_budget_never_blocks_for_ever_and_is_exceeded_by_one_page_at_most(
    max_bytes: int, fetches: list[tuple[int, int, bool]]
) -> None:
    """Pages may be larger than the budget, and larger than what was reserved for them. Some fetches
    are in flight together. A page that is larger than its reservation counts beyond the budget.
    """
    budget = ByteBudget(max_bytes)
    in_flight: list[tuple[int, int]] = []
    held: list[int] = []
    for reserved, found, lands_later in fetches:
        granted = budget.try_reserve(reserved)
        if not in_flight and sum(held) < max_bytes:
            assert granted  # however large
        if granted:
            in_flight.append((reserved, found))
        else:
            assert in_flight or budget.spent  # something will make room
        if not lands_later:
            for each, size in in_flight:
                budget.settle(size, each)
                held.append(size)
            in_flight = []
            assert budget.held_bytes == sum(held)
        if budget.spent:
            budget.release(held.pop(0))
    largest = max((reserved for reserved, _, _ in fetches), default=0)
    beyond = sum(max(0, found - reserved) for reserved, found, _ in fetches)
    assert sum(held) <= max_bytes + largest + beyond


MIB = 1024 * 1024


def test_reads_of_another_process_count_for_as_long_as_the_largest_page_blocks_a_shard() -> None:
    """No longer, since the other machine's clock may be wrong; and a wait that is over is none."""
    pacer = Pacer(ReadRate())
    pacer.wait_for_others(10.0, -3.0)
    assert pacer.ready_at_s(10.0) == 10.0
    pacer.wait_for_others(10.0, 1.5)
    assert pacer.ready_at_s(10.0) == 11.5
    pacer.wait_for_others(10.0, 3_600.0)
    assert pacer.ready_at_s(10.0) == 16.0


def test_throttling_doubles_the_wait_up_to_a_bound_until_a_page_comes() -> None:
    """With jitter from the random that is passed in."""
    pacer, random = Pacer(ReadRate()), Random(7)  # noqa: S311  # the same in every run
    waits, now_s = [], 100.0
    for _ in range(8):
        pacer.begin(now_s)
        pacer.back_off(now_s, random)
        waits.append(pacer.ready_at_s(now_s) - now_s)
        now_s = pacer.ready_at_s(now_s)
    for attempt, wait_s in enumerate(waits):
        longest_s = min(8.0, 0.5 * 2**attempt)
        assert longest_s / 2 - 1e-6 <= wait_s <= max(longest_s, 1.0) + 1e-6
    assert pacer.refused_in_a_row == 8
    pacer.begin(now_s)
    pacer.on_page(now_s, 0)
    assert pacer.refused_in_a_row == 0


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 1), st.integers(0, 3 * MIB)), max_size=60),
    st.floats(0.3, 5),
)
def test_whatever_the_networks_delays_the_service_sees_no_more_than_the_limit(
    calls: list[tuple[float, float, int]], reads_per_second: float
) -> None:
    """The service counts each call somewhere between its start and its answer: never six in less
    than a second, at the default rate.
    """
    pacer, now_s, seen_s = Pacer(ReadRate(reads_per_second=reads_per_second)), 0.0, []
    for took_s, fraction, payload_bytes in calls:
        now_s = pacer.ready_at_s(now_s)
        pacer.begin(now_s)
        seen_s.append(now_s + took_s * fraction)
        now_s += took_s
        pacer.on_page(now_s, payload_bytes)
    window = max(1, int(reads_per_second))
    for earlier, later in zip(seen_s, seen_s[window:], strict=False):
        assert later - earlier >= window / reads_per_second - 1e-6
