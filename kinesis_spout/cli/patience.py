"""Says what a command is trying, when it takes longer than people wait for in silence, and that it
has got its answer.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesis_spout.clock import SystemClock
from kinesis_spout.config import duration
from kinesis_spout.service.surroundings import place_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.config import AwsConfig

PATIENCE_S = 2.0


@contextmanager
def patience(say: Callable[[str], None], what: str) -> Iterator[None]:
    """Call `say`, in another thread, if the block takes longer than `PATIENCE_S`; and again when it
    has ended without an error, which speaks for itself.
    """
    lock, clock = threading.Lock(), SystemClock()
    began_s = clock.monotonic_s()
    is_over = is_said = False

    def complain() -> None:
        nonlocal is_said
        with lock:
            if not is_over:
                is_said = True
                say(f"no answer yet; still trying {what}")

    timer = threading.Timer(PATIENCE_S, complain)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
        timer.cancel()
    if is_said:
        say(f"answered after {duration(round(1000 * (clock.monotonic_s() - began_s)))}: {what}")


def services(aws: AwsConfig, stream: str, zookeeper: str | None = None) -> str:
    """What a command connects to, for `patience`."""
    also = "" if zookeeper is None else f", and ZooKeeper at {zookeeper}"
    return f"stream {stream} {place_in_words(aws, aws.region)}{also}"
