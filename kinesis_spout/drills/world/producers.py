"""The producers of a drill: numbered records, in order for each key."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import Put
from kinesis_spout.drills.world.job import DrillError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.drills.world.kinesis import DrillStream

KEYS = 24
_PADDING = b"." * 100
_INTERVAL_S = 0.05
_APART = 37  # the first numbers, so that all fates come soon


def numbered(key: str, number: int) -> bytes:
    """The data of a record, which states its key and number."""
    return f"{key} {number} ".encode() + _PADDING


class Producers:
    """Puts records in a thread of its own, between `start` and `stop`. `puts`: those that the
    service has taken.
    """

    def __init__(
        self,
        stream: DrillStream,
        *,
        records_per_s: float,
        seed: int,
        payload: Callable[[str, int], bytes] = numbered,
    ) -> None:
        self._stream = stream
        self._records_per_s = records_per_s
        self._random = Random(f"{seed} producers")  # noqa: S311  # keys to draw, not a secret
        self._payload = payload
        self._next = {f"key-{key}": key * _APART for key in range(KEYS)}
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.puts: list[Put] = []

    def start(self) -> None:
        self._ending.clear()
        self._thread = threading.Thread(target=self._run, name="producers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when the last put is answered. Idempotent."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        """Raise the error that ended the thread, if one did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        due = 0.0
        last_s = time.monotonic()
        try:
            while not self._ending.wait(_INTERVAL_S):
                now_s = time.monotonic()
                due, last_s = due + (now_s - last_s) * self._records_per_s, now_s
                while due >= 1 and not self._ending.is_set():
                    count = min(int(due), KEYS)
                    self._put(count)
                    due -= count
        except BaseException as exc:  # noqa: BLE001  # `check` raises it in the drill's thread
            self._error = exc

    def _put(self, count: int) -> None:
        """Put one record for each of so many keys."""
        keys = self._random.sample(list(self._next), count)
        numbers = [self._next[key] for key in keys]
        data = [self._data(key, number) for key, number in zip(keys, numbers, strict=True)]
        at_ns = time.monotonic_ns()
        placed = self._stream.put(list(zip(keys, data, strict=True)))
        for key, number, (shard_id, sequence) in zip(keys, numbers, placed, strict=True):
            self.puts.append(Put(key, number, shard_id, sequence, at_ns))
            self._next[key] += 1

    def _data(self, key: str, number: int) -> bytes:
        """Raises `DrillError` for whatever the user's function raises, or if it makes no bytes."""
        try:
            data = self._payload(key, number)
        except Exception as exc:
            raise DrillError(
                f"the payload of {key!r}, {number} cannot be made: {type(exc).__name__}: {exc}"
            ) from exc
        if not isinstance(data, bytes):
            raise DrillError(
                f"the payload of {key!r}, {number} is of type {type(data).__name__}",
                "return bytes",
            )
        return data
