"""Lines through file descriptors: `LineReader` reads them in batches, `LineWriter` writes them.

Neither blocks for ever. A line that has come does not wait long for more, and a reader that is slow
or gone does not hold the writer up.
"""

from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SYSTEM_CLOCK = SystemClock()
_CHUNK_BYTES = 1024 * 1024
_LOOK_S = 0.1
LINGER_S = 0.2
_LOOK_MS = 100
_MOST_AT_ONCE = 1024 * 1024
GRACE_S = 2.0


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


class LineWriter:
    """Writes to a file descriptor without a buffer of its own: what `write` counts, the pipe or the
    file has.

    `stopped()` is asked while a reader does not read: from then on it is given `grace_s` more. For
    one thread.
    """

    def __init__(
        self, descriptor: int, stopped: Callable[[], bool], *, grace_s: float = GRACE_S
    ) -> None:
        self._descriptor = descriptor
        self._stopped = stopped
        self._grace_ms = grace_s * 1000
        kind = os.fstat(descriptor).st_mode
        self._is_pipe = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        # A pipe that can be written to takes so much without blocking.
        self._at_once = select.PIPE_BUF if self._is_pipe else _MOST_AT_ONCE
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._gone_poll = select.poll()
        self._gone_poll.register(descriptor, 0)

    @property
    def reader_is_gone(self) -> bool:
        """Whether nobody reads from the pipe any more. False for a file."""
        return self._is_pipe and any(event & select.POLLERR for _, event in self._gone_poll.poll(0))

    def write(self, data: bytes) -> int:
        """How many bytes were written: all, unless it was stopped. Raises BrokenPipeError when
        nobody reads, and OSError.
        """
        rest = memoryview(data)
        waited_ms = 0
        while rest:
            if self._poll.poll(_LOOK_MS):
                rest = rest[os.write(self._descriptor, rest[: self._at_once]) :]
            elif self._stopped():
                waited_ms += _LOOK_MS
                if waited_ms >= self._grace_ms:
                    break
        return len(data) - len(rest)
