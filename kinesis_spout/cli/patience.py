"""Says what a command is trying, when it takes longer than people wait for in silence."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesis_spout.service.surroundings import place_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.config import AwsConfig

PATIENCE_S = 2.0


@contextmanager
def patience(say: Callable[[str], None], what: str) -> Iterator[None]:
    """Call `say` once, in another thread, if the block takes longer than `PATIENCE_S`."""
    timer = threading.Timer(PATIENCE_S, say, (f"no answer yet; still trying {what}",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def services(aws: AwsConfig, stream: str, zookeeper: str | None = None) -> str:
    """What a command connects to, for `patience`."""
    also = "" if zookeeper is None else f", and ZooKeeper at {zookeeper}"
    return f"stream {stream} {place_in_words(aws, aws.region)}{also}"
