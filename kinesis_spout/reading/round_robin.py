"""Fetching from many shards concurrently, in strict rotation.

A shard that must wait for its limits, or whose buffer is full, is skipped and delays no other. A
shard that got no budget is the first in line when there is budget again, so that none starves.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import TYPE_CHECKING

from kinesis_spout.errors import ThrottledError
from kinesis_spout.reading.shard_getter import FetchPostponedError
from kinesis_spout.threads import NewPool, thread_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.buffered_getter import BufferedGetter
    from kinesis_spout.reading.page import Page

_LOOK_AGAIN_S = 0.05


class RoundRobinReader:
    """Keeps up to `max_concurrent` fetches in flight. A context manager, for one thread.

    `pause`: waits so many seconds at most, less where something may be ready earlier than its
    `ready_at_s` said; by default, the clock's sleep.

    Leaving the context waits for the fetches in flight; their pages are in the buffers then.
    Leaving it by an exception does not wait.
    """

    def __init__(
        self,
        getters: Sequence[BufferedGetter],
        *,
        max_concurrent: int,
        clock: Clock,
        new_pool: NewPool = thread_pool,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        if max_concurrent < 1:
            raise ValueError(f"{max_concurrent} concurrent fetches read nothing; use one or more")
        self._getters = list(getters)
        self._max_concurrent = max_concurrent
        self._clock = clock
        self._new_pool = new_pool
        self._pause = clock.sleep if pause is None else pause
        self._next = 0
        self._pool: Executor | None = None
        self._in_flight: dict[Future[Page], BufferedGetter] = {}

    def __enter__(self) -> Self:
        self._pool = self._new_pool(self._max_concurrent, "kinesis-fetch")
        return self

    def replace(self, getters: Sequence[BufferedGetter]) -> None:
        """Read these from now on. A fetch in flight for another one completes, and `step` returns
        that one.
        """
        self._getters = list(getters)
        self._next = self._next % len(self._getters) if self._getters else 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A generator that is closed early, or fails, must not wait for a fetch that nobody needs.
        is_normal = kind is None
        if self._pool is not None:
            self._pool.shutdown(wait=is_normal, cancel_futures=True)
            self._pool = None
        if is_normal:
            self._settle_all()

    @property
    def idle(self) -> bool:
        """Whether no fetch is in flight and none will start until pages are taken: no shard wants a
        fetch that the budget allows.
        """
        return not self._in_flight and not any(
            getter.wants_fetch and not getter.budget.spent for getter in self._getters
        )

    def step(self, timeout_s: float, awaited: BufferedGetter | None = None) -> list[BufferedGetter]:
        """Start the fetches that are due, wait up to `timeout_s` for one to complete, and return
        the getters whose fetches completed.

        `awaited`: the getter that somebody waits for (`BufferedGetter.demand`). It comes first,
        because the budget may hold what waits for its page.

        Returns at once when there is nothing to wait for. A shard that is throttled, or whose fetch
        is postponed, is not returned; it is tried again when it is ready. Raises the first error of
        a fetch, after the other fetches have completed or been cancelled.
        """
        left_s = timeout_s
        while True:
            due_in_s = self._submit_due(awaited)
            if not self._in_flight and due_in_s is None:
                return []
            # The time waited is counted here instead of read from the clock: a simulated clock that
            # stands still would make this loop endless.
            pause_s = left_s if due_in_s is None else min(left_s, due_in_s)
            completed = self._completed(pause_s)
            left_s -= pause_s
            if completed or left_s <= 0:
                return completed

    def _submit_due(self, awaited: BufferedGetter | None) -> float | None:
        """Submit the fetches that may start now, in rotation. Returns the seconds until the next
        one may start; None where that depends on a completion.
        """
        pool = self._pool
        if pool is None:
            raise RuntimeError("the reader is not open; use it in a with statement")
        soonest_s: float | None = None
        busy = set(map(id, self._in_flight.values()))
        for index in self._rotation(awaited):
            getter = self._getters[index]
            if id(getter) in busy or not getter.wants_fetch:
                continue
            if len(self._in_flight) >= self._max_concurrent:
                return None  # all slots are taken: a completion comes first
            ready_at_s = getter.ready_at_s()
            # The clock is read after ready_at_s(): a getter that is ready returns its own "now".
            if ready_at_s > self._clock.monotonic_s():
                soonest_s = ready_at_s if soonest_s is None else min(soonest_s, ready_at_s)
                continue
            self._next = index
            if not getter.try_reserve():
                if not getter.budget.spent and not self._in_flight:
                    # A fetch of another reader holds the budget, and nothing here will signal its
                    # completion.
                    soonest_s = self._clock.monotonic_s() + _LOOK_AGAIN_S
                break
            self._next = (index + 1) % len(self._getters)
            self._in_flight[pool.submit(getter.fetch)] = getter
        return None if soonest_s is None else max(0.0, soonest_s - self._clock.monotonic_s())

    def _rotation(self, awaited: BufferedGetter | None) -> Iterator[int]:
        """The getters' indices: the awaited one's, then from the next one on. Lazily, because most
        steps need only a few of many.
        """
        begin = self._next
        before = None
        if awaited is not None and awaited.is_demanded:
            before = self._getters.index(awaited)
            yield before
        for offset in range(len(self._getters)):
            index = (begin + offset) % len(self._getters)
            if index != before:
                yield index

    def _completed(self, timeout_s: float) -> list[BufferedGetter]:
        """Wait for a completion. Returns the getters whose fetches completed, in the order of their
        starts.
        """
        if not self._in_flight:
            self._pause(timeout_s)
            return []
        done, _ = wait(self._in_flight, timeout=timeout_s, return_when=FIRST_COMPLETED)
        finished = [
            (future, self._in_flight.pop(future))
            for future in list(self._in_flight)
            if future in done
        ]
        for future, _getter in finished:
            self._raise_if_failed(future)
        return [getter for future, getter in finished if future.exception() is None]

    def _raise_if_failed(self, future: Future[Page]) -> None:
        error = future.exception()
        if error is None or isinstance(error, FetchPostponedError):
            return
        if isinstance(error, ThrottledError) and error.retryable:
            return
        for other in self._in_flight:
            other.cancel()
        self._settle_all()
        raise error

    def _settle_all(self) -> None:
        """Wait until no fetch is in flight. A fetch that was cancelled before it began gives its
        reservation back.
        """
        # Not for the cancelled ones: a pool that was shut down never notifies of these, and the
        # wait would not end.
        wait([future for future in self._in_flight if not future.cancelled()])
        for future, getter in self._in_flight.items():
            if future.cancelled():
                getter.unreserve()
        self._in_flight.clear()
