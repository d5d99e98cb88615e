"""Whether another reader subscribes with the same registered consumer. The service gives a shard to
one of them: each takes it from the other, again and again, and both read little by subscription.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

log = logging.getLogger("kinesis_spout")
# A restart, or a shard that moves to another task of the application, takes it once or twice.
_TIMES = 3
_WITHIN_S = 300.0


class SharedConsumer:
    """Warns once that another reader seems to use the consumer: as soon as one shard was taken
    three times within five minutes. Any thread may call it.

    `consumer`: its name or ARN. `option`: where the user names it.
    """

    def __init__(self, consumer: str, *, option: str) -> None:
        self._consumer = consumer
        self._option = option
        self._lock = threading.Lock()
        self._taken_s: dict[str, deque[float]] = {}
        self._has_warned = False

    def note(self, shard_id: str, now_s: float) -> None:
        """The consumer's subscription to a shard was taken, or was refused because there is another
        one. `now_s`: monotonic.
        """
        with self._lock:
            times_s = self._taken_s.setdefault(shard_id, deque(maxlen=_TIMES))
            times_s.append(now_s)
            if self._has_warned or not _is_often(times_s, now_s):
                return
            self._has_warned = True
        log.warning(
            "another reader seems to take the subscriptions of consumer %s (shard %s: %d times in "
            "%.0f s), so both get less by subscription than they could, and poll; give each "
            "application a consumer of its own with %s",
            self._consumer,
            shard_id,
            _TIMES,
            now_s - times_s[0],
            self._option,
        )

    def sentence(self, now_s: float) -> str | None:
        """That another reader seems to use the consumer now; None where none does."""
        with self._lock:
            if not any(_is_often(times_s, now_s) for times_s in self._taken_s.values()):
                return None
        return (
            f"another reader takes the subscriptions of consumer {self._consumer} again and again, "
            f"as it has the same consumer; give each application one of its own with {self._option}"
        )


def _is_often(times_s: deque[float], now_s: float) -> bool:
    return len(times_s) == _TIMES and now_s - times_s[0] <= _WITHIN_S
