"""Fetching from many shards at once, in strict rotation.

A shard that must wait for its limits, or whose buffer is full, is passed over and delays nobody. A
shard that found no budget is the first to get some when there is some again, so that none starves.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import TYPE_CHECKING

from kinesis_spout.errors import ThrottledError
from kinesis_spout.threads import NewPool, thread_pool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.buffered_getter import BufferedGetter
    from kinesis_spout.reading.page import Page

_LOOK_AGAIN_S = 0.05


class RoundRobinReader:
    """Keeps up to `max_concurrent` fetches under way. Use it as a context manager, from one thread.

    Leaving the context waits for the fetches under way; their pages are in the buffers then.
    """

    def __init__(
        self,
        getters: Sequence[BufferedGetter],
        *,
        max_concurrent: int,
        clock: Clock,
        new_pool: NewPool = thread_pool,
    ) -> None:
        if max_concurrent < 1:
            raise ValueError(f"{max_concurrent} concurrent fetches read nothing; use one or more")
        self._getters = list(getters)
        self._max_concurrent = max_concurrent
        self._clock = clock
        self._new_pool = new_pool
        self._next = 0
        self._pool: Executor | None = None
        self._under_way: dict[Future[Page], BufferedGetter] = {}

    def __enter__(self) -> Self:
        self._pool = self._new_pool(self._max_concurrent, "kinesis-fetch")
        return self

    def replace(self, getters: Sequence[BufferedGetter]) -> None:
        """Go on with these. A fetch that is under way for another one completes, and is told by
        `step`.
        """
        self._getters = list(getters)
        self._next = self._next % len(self._getters) if self._getters else 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._settle_all()

    @property
    def idle(self) -> bool:
        """Nothing is under way, and nothing will be until pages are taken: no shard wants a fetch
        that the budget allows.
        """
        return not self._under_way and not any(
            getter.wants_fetch and not getter.budget.spent for getter in self._getters
        )

    def step(self, timeout_s: float) -> list[BufferedGetter]:
        """Start what is due, wait for at most `timeout_s` until a fetch completes, return the
        getters whose fetches did.

        Returns as soon as there is nothing to wait for. A shard that was throttled is tried again
        at its time and is not returned. Raises the first error of a fetch, after the other fetches
        have completed or been cancelled.
        """
        left_s = timeout_s
        while True:
            due_in_s = self._submit_due()
            if not self._under_way and due_in_s is None:
                return []
            # What was waited is counted here, not on the clock, so that a simulated clock cannot
            # make this endless.
            pause_s = left_s if due_in_s is None else min(left_s, due_in_s)
            completed = self._completed(pause_s)
            left_s -= pause_s
            if completed or left_s <= 0:
                return completed

    def _submit_due(self) -> float | None:
        """Submit what may start now, in rotation. Returns in how many seconds to look again, where
        that is a matter of time.
        """
        pool = self._pool
        if pool is None:
            raise RuntimeError("the reader is not open; use it in a with statement")
        soonest_s: float | None = None
        busy = set(map(id, self._under_way.values()))
        first = self._next
        for offset in range(len(self._getters)):
            index = (first + offset) % len(self._getters)
            getter = self._getters[index]
            if id(getter) in busy or not getter.wants_fetch:
                continue
            if len(self._under_way) >= self._max_concurrent:
                return None  # a completed fetch comes before anything that is due later
            ready_at_s = getter.ready_at_s()
            if (
                ready_at_s > self._clock.monotonic_s()
            ):  # asked after: a getter that is ready answers with its own now
                soonest_s = ready_at_s if soonest_s is None else min(soonest_s, ready_at_s)
                continue
            self._next = index
            if not getter.try_reserve():
                if not getter.budget.spent and not self._under_way:
                    soonest_s = (
                        self._clock.monotonic_s() + _LOOK_AGAIN_S
                    )  # another reader's fetch holds the budget
                break
            self._next = (index + 1) % len(self._getters)
            self._under_way[pool.submit(getter.fetch)] = getter
        return None if soonest_s is None else max(0.0, soonest_s - self._clock.monotonic_s())

    def _completed(self, timeout_s: float) -> list[BufferedGetter]:
        """Wait for a completion. The getters whose fetches are done, in the order in which they
        were started.
        """
        if not self._under_way:
            self._clock.sleep(timeout_s)
            return []
        done, _ = wait(self._under_way, timeout=timeout_s, return_when=FIRST_COMPLETED)
        finished = [
            (future, self._under_way.pop(future))
            for future in list(self._under_way)
            if future in done
        ]
        for future, _getter in finished:
            self._raise_if_failed(future)
        return [getter for future, getter in finished if future.exception() is None]

    def _raise_if_failed(self, future: Future[Page]) -> None:
        error = future.exception()
        if error is None or (isinstance(error, ThrottledError) and error.retryable):
            return
        for other in self._under_way:
            other.cancel()
        self._settle_all()
        raise error

    def _settle_all(self) -> None:
        """Wait until nothing is under way. A fetch that was cancelled before it began gives its
        reservation back.
        """
        wait(self._under_way)
        for future, getter in self._under_way.items():
            if future.cancelled():
                getter.unreserve()
        self._under_way.clear()
