"""Reading ahead of many shards: rotation, budgets, bounds and failures, with scripted getters."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import (
    AccessDeniedError,
    KinesisError,
    StillThrottledError,
    ThrottledError,
)
from kinesis_spout.reading.buffered_getter import RESERVED_PAGE_BYTES, BufferedGetter, ByteBudget
from kinesis_spout.reading.page import Page
from kinesis_spout.reading.round_robin import RoundRobinReader
from kinesis_spout.testing import ManualClock
from state.position import TRIM_HORIZON, Position
from tests.support.spout import spout_pages

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self.limits: list[int] = []
        self.due_s = 0.0
        self.iterator: str | None = None

    @property
    def position(self) -> Position:
        return TRIM_HORIZON

    def ready_at_s(self) -> float:
        return self.due_s

    def fetch(self, limit: int) -> Page:
        self.log.append(self.shard_id)
        self.limits.append(limit)
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
    page_bytes: int | None = None,
) -> BufferedGetter:
    return BufferedGetter(
        getter,
        max_records=max_records,
        budget=budget or ByteBudget(ROOMY),
        total_records=total_records,
        page_bytes=page_bytes,
    )


def fetched(getter: BufferedGetter) -> Page:
    """The page of one more fetch."""
    assert getter.try_reserve()
    return getter.fetch()


def shards_of(getters: list[BufferedGetter]) -> list[str]:
    return [getter.shard_id for getter in getters]


# the budget ---------------------------------------------------------------------------------------


def test_a_budget_reserves_for_the_largest_page_and_settles_to_the_real_one() -> None:
    """Two pages of 10 MB fit into 25 MB; more fit once the first turns out to be small."""
    budget = ByteBudget(RESERVED_PAGE_BYTES * 5 // 2)
    assert [budget.try_reserve() for _ in range(3)] == [True, True, False]
    budget.settle(100)
    assert budget.try_reserve()
    assert budget.held_bytes == 100


@pytest.mark.parametrize(
    "make", [lambda: ByteBudget(0), lambda: buffered(ScriptedGetter("a"), max_records=0)]
)
def test_bounds_of_nothing_are_refused(make: Callable[[], object]) -> None:
    """They would never read anything."""
    with pytest.raises(ValueError, match="holds nothing"):
        make()


# one shard's buffer -------------------------------------------------------------------------------


def test_a_buffer_fetches_no_more_records_than_it_has_room_for() -> None:
    """Taking a page makes room again."""
    scripted = ScriptedGetter("a", 4, 9)
    getter = buffered(scripted, max_records=10)
    for _ in range(2):
        fetched(getter)
    assert (scripted.limits, getter.buffered_records, getter.wants_fetch) == ([10, 6], 10, False)
    page = getter.take()
    assert page is not None
    assert (page.count, getter.buffered_records, getter.wants_fetch) == (4, 6, True)


def test_the_newest_of_a_run_of_empty_pages_is_kept() -> None:
    """It has the tip or the end, and a run of any length needs no memory."""
    end = replace(Page.empty("a"), ended=True, at_tip=True)
    getter = buffered(ScriptedGetter("a", 2, 0, 0, end))
    for _ in range(4):
        fetched(getter)
    assert (getter.ended, getter.at_tip, getter.last_page, getter.wants_fetch) == (
        True,
        True,
        end,
        False,
    )
    first, second = getter.take(), getter.take()
    assert first is not None
    assert (first.count, second, getter.take()) == (2, end, None)


def test_a_page_that_was_replaced_is_not_dropped_in_the_place_of_its_successor() -> None:
    """Another thread has fetched between the look at the empty page and its removal."""
    getter = buffered(ScriptedGetter("a", 0, 2))
    empty = fetched(getter)
    assert getter.first() is empty
    page = fetched(getter)
    assert not getter.drop(empty)
    assert getter.take() is page


def test_a_shard_that_is_gone_is_not_fetched_again() -> None:
    """Its page is kept, after the pages before it."""
    gone = Page.empty("a", gone=True)
    getter = buffered(ScriptedGetter("a", 2, gone))
    for _ in range(2):
        fetched(getter)
    assert (getter.gone, getter.ended, getter.wants_fetch) == (True, False, False)
    first, second = getter.take(), getter.take()
    assert first is not None
    assert (first.count, second, getter.take()) == (2, gone, None)


def test_a_failed_fetch_gives_its_reservation_back() -> None:
    """Otherwise failures would use the budget up."""
    budget = ByteBudget(1)
    getter = buffered(ScriptedGetter("a", AccessDeniedError("no"), 1), budget=budget)
    assert getter.try_reserve()
    with pytest.raises(AccessDeniedError):
        getter.fetch()
    assert fetched(getter).count == 1


def test_a_shard_is_read_up_to_its_total_also_if_pages_are_taken_meanwhile() -> None:
    """The room of the buffer comes back with each page that is taken; the total does not."""
    scripted = ScriptedGetter("a", 4)
    getter = buffered(scripted, max_records=5, total_records=7)
    for _ in range(2):
        assert getter.wants_fetch
        fetched(getter)
        getter.take()
    assert scripted.limits == [5, 3]
    assert (getter.is_over, getter.wants_fetch, getter.buffered_records) == (True, False, 0)


@pytest.mark.parametrize(
    "last", [page_of("a", 2, ended=True), Page.empty("a", gone=True)], ids=["ended", "gone"]
)
def test_a_shard_is_over_when_it_is_ended_gone_or_closed(last: Page) -> None:
    """One whose buffer is full is not: it goes on when pages are taken."""
    getter = buffered(ScriptedGetter("a", 3, last), max_records=3)
    fetched(getter)
    assert (getter.wants_fetch, getter.is_over) == (False, False)
    getter.take()
    fetched(getter)
    assert getter.is_over
    getter = buffered(ScriptedGetter("a", 3))
    fetched(getter)
    getter.close()
    assert (getter.is_over, getter.wants_fetch) == (True, False)
    assert getter.take() is not None, "what was fetched is not lost"


def test_the_pages_in_the_buffer_can_be_looked_at_and_stay() -> None:
    getter = buffered(ScriptedGetter("a", 2, 0, 3))
    assert getter.pages() == []
    pages = [fetched(getter) for _ in range(3)]
    assert [id(page) for page in getter.pages()] == [id(pages[0]), id(pages[2])]
    assert getter.buffered_records == 5


class NotingBudget(ByteBudget):
    """Notes what is reserved."""

    def __init__(self) -> None:
        super().__init__(ROOMY)
        self.reserved: list[int] = []

    def try_reserve(self, page_bytes: int = RESERVED_PAGE_BYTES, *, force: bool = False) -> bool:
        self.reserved.append(page_bytes)
        return super().try_reserve(page_bytes, force=force)


def test_a_reservation_grows_with_the_largest_page_of_its_shard() -> None:
    """A small budget allows several shards at once while their pages are small. All of it comes
    back.
    """
    budget = NotingBudget()
    small, large = (page_of("a", count).columns.nbytes for count in (1, 50))
    getter = buffered(ScriptedGetter("a", 1, 50, 1), budget=budget, page_bytes=small)
    for _ in range(4):
        fetched(getter)
        getter.take()
    assert budget.reserved == [small, 2 * small, 2 * large, 2 * large]
    assert budget.held_bytes == 0
    assert budget.try_reserve(ROOMY)


def test_a_demand_is_one_fetch_whatever_the_budget_and_the_limits_say() -> None:
    """Somebody waits for the shard's page; those of other shards have spent the budget."""
    budget = ByteBudget(1)
    other = buffered(ScriptedGetter("b", 3), budget=budget)
    fetched(other)
    getter = buffered(ScriptedGetter("a", 2), budget=budget, total_records=2)
    assert not getter.try_reserve()
    getter.close()
    getter.demand()
    assert (getter.is_demanded, getter.wants_fetch, getter.is_over) == (True, True, True)
    assert fetched(getter).count == 2
    assert (getter.is_demanded, getter.wants_fetch) == (False, False)
    getter.take()
    getter.demand()
    assert fetched(getter).count == 2  # beyond the total
    assert not getter.wants_fetch


def test_a_demand_that_failed_stands() -> None:
    """Its page is still waited for."""
    getter = buffered(ScriptedGetter("a", ThrottledError("wait"), 1))
    getter.close()
    getter.demand()
    assert getter.try_reserve()
    with pytest.raises(ThrottledError):
        getter.fetch()
    assert getter.wants_fetch
    assert fetched(getter).count == 1


def test_a_page_that_has_just_come_is_not_demanded_again() -> None:
    """The fetch completed between the caller's look and its demand. Another fetch would exceed the
    shard's limits, and nobody would wait for it.
    """
    getter = buffered(ScriptedGetter("a", 2), total_records=2)
    assert getter.first() is None
    fetched(getter)
    getter.demand()
    assert (getter.is_demanded, getter.wants_fetch) == (False, False)


def test_a_buffer_that_starts_over_fetches_from_its_new_getter() -> None:
    """And forgets the tip, the end, and that the shard was gone."""
    getter = buffered(ScriptedGetter("a", Page.empty("a", gone=True)))
    fetched(getter)
    getter.take()
    assert getter.is_over
    getter.start_over(ScriptedGetter("a", 3))
    assert (getter.is_over, getter.last_page, getter.wants_fetch) == (False, None, True)
    assert fetched(getter).count == 3


def test_the_page_of_a_fetch_that_was_in_flight_when_the_buffer_started_over_is_dropped() -> None:
    """The new getter reads these records again, and none may come twice. The page holds no bytes
    and does not count.
    """
    budget = ByteBudget(ROOMY)
    release = threading.Event()
    old = AnnouncingGetter("a", release)
    getter = buffered(old, budget=budget, total_records=4)
    assert getter.try_reserve()
    fetching = threading.Thread(target=getter.fetch)
    fetching.start()
    assert old.begun.wait(LIMIT_S)
    getter.start_over(ScriptedGetter("a", 4))
    getter.demand()
    release.set()
    fetching.join(LIMIT_S)
    assert (getter.pages(), getter.buffered_records, budget.held_bytes) == ([], 0, 0)
    assert getter.is_demanded
    assert fetched(getter).count == 4


# the rotation -------------------------------------------------------------------------------------


def test_shards_are_fetched_in_strict_rotation() -> None:
    """One after the other, whatever the fetches return."""
    log: list[str] = []
    getters = [buffered(ScriptedGetter(name, log=log), max_records=3) for name in "abc"]
    with reader_of(getters) as reader:
        while not reader.idle:
            assert len(reader.step(LIMIT_S)) == 1
    assert log == list("abcabcabc")


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


def test_a_throttled_shard_holds_no_thread_and_is_fetched_later() -> None:
    """With a single thread the other shard is read meanwhile."""
    log: list[str] = []
    throttled = ScriptedGetter("t", ThrottledError("wait"), 1, log=log)
    getters = [
        buffered(throttled, max_records=1),
        buffered(ScriptedGetter("b", log=log), max_records=2),
    ]
    with reader_of(getters) as reader:
        done: list[str] = []
        while not reader.idle:
            done += shards_of(reader.step(LIMIT_S))
    assert (log, sorted(done)) == (["t", "b", "t", "b"], ["b", "b", "t"])


def test_a_slow_shard_does_not_delay_the_results_of_others() -> None:
    """Completed fetches are returned, the others stay in flight, and `step` keeps its timeout."""
    release = threading.Event()
    getters = [
        buffered(ScriptedGetter("slow", release), max_records=1),
        buffered(ScriptedGetter("b"), max_records=1),
    ]
    with reader_of(getters, 2) as reader:
        assert shards_of(reader.step(LIMIT_S)) == ["b"]
        assert reader.step(0.02) == []
        assert not reader.idle
        release.set()
        assert shards_of(reader.step(LIMIT_S)) == ["slow"]
        assert reader.idle


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


def test_reading_stops_within_one_page_of_the_budget() -> None:
    """The reader is idle then, although the shards have more."""
    budget = ByteBudget(2000)
    getters = [buffered(ScriptedGetter(name, 10), max_records=1000, budget=budget) for name in "ab"]
    with reader_of(getters, 4) as reader:
        while not reader.idle:
            reader.step(LIMIT_S)
    page_bytes = page_of("a", 10).columns.nbytes
    assert 2000 <= budget.held_bytes < 2000 + page_bytes


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


def test_throttling_that_does_not_end_is_an_error() -> None:
    """The getter decides when it has waited for long enough."""
    getters = [buffered(ScriptedGetter("a", StillThrottledError("for ever")))]
    with (
        reader_of(getters) as reader,
        pytest.raises(StillThrottledError),
    ):
        reader.step(LIMIT_S)


class AnnouncingGetter(ScriptedGetter):
    """Says when its fetch has begun."""

    def __init__(self, shard_id: str, *script: threading.Event) -> None:
        super().__init__(shard_id, *script)
        self.begun = threading.Event()

    def fetch(self, limit: int) -> Page:
        self.begun.set()
        return super().fetch(limit)


def test_leaving_the_reader_waits_for_fetches_in_flight() -> None:
    """Positions and buffers agree afterwards."""
    release = threading.Event()
    announcing = AnnouncingGetter("a", release)
    getter = buffered(announcing, max_records=1)
    with reader_of([getter]) as reader:
        assert reader.step(0.0) == []
        assert announcing.begun.wait(LIMIT_S)
        release.set()
    assert getter.buffered_records == 1


def test_leaving_the_reader_by_an_exception_does_not_wait_for_fetches_in_flight() -> None:
    """A generator that is closed early, say: nobody needs their pages any more."""
    release = threading.Event()
    announcing = AnnouncingGetter("a", release)
    getter = buffered(announcing, max_records=1)

    def leave() -> None:
        with reader_of([getter]) as reader:
            reader.step(0.0)
            assert announcing.begun.wait(LIMIT_S)
            raise GeneratorExit

    try:
        with pytest.raises(GeneratorExit):
            leave()
        assert getter.buffered_records == 0
    finally:
        release.set()


def test_a_shard_that_somebody_waits_for_is_fetched_first() -> None:
    """Although the others are before it, and have spent the budget. The rotation goes on after
    it.
    """
    log: list[str] = []
    budget = ByteBudget(1)
    getters = [buffered(ScriptedGetter(name, log=log), budget=budget) for name in "abc"]
    with reader_of(getters) as reader:
        assert shards_of(reader.step(LIMIT_S)) == ["a"]
        assert reader.step(LIMIT_S) == []
        getters[2].demand()
        assert shards_of(reader.step(LIMIT_S, awaited=getters[2])) == ["c"]
        assert reader.step(LIMIT_S) == []
        for getter in getters:
            getter.take()
        assert shards_of(reader.step(LIMIT_S)) == ["a"]
    assert log == list("aca")


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


def test_nothing_to_read_is_idle_at_once() -> None:
    """No shards, or none that wants a fetch."""
    with reader_of([], 4) as reader:
        assert reader.idle
        assert reader.step(LIMIT_S) == []


def test_a_reader_that_is_not_open_says_so() -> None:
    """Threads are started by the with statement, not by the constructor."""
    with pytest.raises(RuntimeError, match="with statement"):
        reader_of([buffered(ScriptedGetter("a"))]).step(0)
