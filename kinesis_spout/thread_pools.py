"""Where the threads come from: whoever works on several shards at a time is given a maker of
executors.

In production these are thread pools. A simulation gives one that runs each call at once, in the
caller's thread, so that a seed tells the whole history.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

NewPool = Callable[[int, str], Executor]
"""Makes an executor of at most so many threads, whose names begin so. It is shut down by whoever
asked for it.
"""


def thread_pool(most: int, name: str) -> Executor:
    """A pool of threads, started as they are needed."""
    return ThreadPoolExecutor(most, thread_name_prefix=name)
