"""Reading lines as they come, in batches: what is there is not kept waiting for more for longer
than a moment.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SYSTEM_CLOCK = SystemClock()
_CHUNK_BYTES = 1024 * 1024
_LOOK_S = 0.1
LINGER_S = 0.2


class LineReader:
    """Reads a file descriptor: a pipe, a terminal, a file. For one thread. A line is given without
    its line end, LF or CR LF.
    """

    def __init__(
        self,
        descriptor: int,
        stopped: Callable[[], bool],
        *,
        max_lines: int,
        max_bytes: int,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        self._descriptor = descriptor
        self._stopped = stopped
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._clock = clock
        self._begun = b""

    def batches(self) -> Iterator[list[bytes]]:
        """Lists of lines, none empty, until the input ends, or it is to stop: then with the whole
        lines that have come.

        A list is given when it has about `max_lines` or `max_bytes`, or its first line has waited
        for `LINGER_S`.
        """
        lines: list[bytes] = []
        held_bytes = 0
        due_s = 0.0
        while not self._stopped():
            chunk = self._read(max(0.0, due_s - self._clock.monotonic_s()) if lines else _LOOK_S)
            if chunk == b"":
                if self._begun:
                    lines.append(self._begun)
                break
            if not lines:
                due_s = self._clock.monotonic_s() + LINGER_S
            if chunk is not None:
                lines += self._split(chunk)
                held_bytes += len(chunk)
            is_full = len(lines) >= self._max_lines or held_bytes >= self._max_bytes
            if lines and (is_full or self._clock.monotonic_s() >= due_s):
                yield lines
                lines, held_bytes = [], 0
        if lines:
            yield lines

    def _read(self, timeout_s: float) -> bytes | None:
        """None when nothing has come in time; empty at the end."""
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            return None
        return os.read(self._descriptor, _CHUNK_BYTES)

    def _split(self, chunk: bytes) -> list[bytes]:
        *whole, self._begun = (self._begun + chunk).split(b"\n")
        return [line.removesuffix(b"\r") for line in whole]
