"""The pool of a spout."""

from __future__ import annotations

import threading

import pytest

from kinesis_spout.threads import DaemonPool

TIMEOUT_S = 60.0


def test_a_program_can_exit_while_a_call_hangs() -> None:
    """The threads are daemons, and nothing joins them."""
    pool, hangs, end = DaemonPool(1, "test"), threading.Event(), threading.Event()

    def hang() -> bool:
        hangs.set()
        return end.wait(TIMEOUT_S) and threading.current_thread().daemon

    call = pool.submit(hang)
    assert hangs.wait(TIMEOUT_S)
    waiting = pool.submit(int)
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="test is shut down"):
        pool.submit(int)
    end.set()
    assert call.result(TIMEOUT_S)
    pool.shutdown()
