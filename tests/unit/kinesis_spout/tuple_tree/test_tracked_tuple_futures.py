from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kinesis_spout.tuple_tree.acker import Acker
from kinesis_spout.tuple_tree.tracked_tuple import TupleTree
from tests.support.spout.tuple_trees import RecordingSpout


def new_tree() -> tuple[TupleTree, RecordingSpout]:
    acker: Acker[TupleTree] = Acker()
    told = RecordingSpout(acker)
    return TupleTree(acker, "m", told), told


def test_futures_of_threads_are_followed() -> None:
    """Also those that are done already. The future is returned."""
    tree, told = new_tree()
    done: Future[int] = Future()
    done.set_result(1)
    with ThreadPoolExecutor(2) as pool:
        with tree:
            assert tree.follow(done) is done
            futures = [tree.follow(pool.submit(abs, number)) for number in range(10)]
        assert [future.result(timeout=30) for future in futures] == list(range(10))
    assert told.outcomes == [("m", "acked")]


@pytest.mark.parametrize(
    ("raised", "reason"), [(ValueError("bad"), "ValueError: bad"), (None, "cancelled")]
)
def test_a_future_with_an_exception_or_cancelled_fails_the_emission(
    raised: Exception | None, reason: str
) -> None:
    """With an exception, or because it was cancelled."""
    tree, told = new_tree()
    future: Future[None] = Future()
    with tree:
        tree.follow(future)
    if raised is None:
        future.cancel()
    else:
        future.set_exception(raised)
    assert told.outcomes == [("m", reason)]


def test_tasks_of_asyncio_are_followed() -> None:
    """As futures of threads are."""
    acker: Acker[TupleTree] = Acker()
    told = RecordingSpout(acker)

    async def work(ready: asyncio.Event, *, bad: bool) -> None:
        await ready.wait()
        if bad:
            raise ValueError("bad")

    async def both() -> None:
        for name, bad in (("good", False), ("bad", True)):
            ready = asyncio.Event()
            with TupleTree(acker, name, told) as tree:
                tasks = [
                    tree.follow(asyncio.ensure_future(work(ready, bad=bad and number == 1)))
                    for number in range(3)
                ]
            stuck = asyncio.ensure_future(asyncio.Event().wait())
            assert told.outcomes == [("good", "acked")][: int(bad)]
            ready.set()
            await asyncio.wait(tasks, timeout=30)
            stuck.cancel()
        with TupleTree(acker, "left", told) as tree:
            left = tree.follow(asyncio.ensure_future(asyncio.Event().wait()))
        left.cancel()
        await asyncio.wait([left, stuck], timeout=30)

    asyncio.run(both())
    assert told.outcomes == [("good", "acked"), ("bad", "ValueError: bad"), ("left", "cancelled")]
    assert len(acker) == 0
