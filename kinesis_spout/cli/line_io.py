"""Lines through file descriptors: `LineReader` reads them in batches, `LineWriter` writes them.

Neither blocks for ever. A line that has arrived does not wait long for others. A reader that is
slow or gone does not block the writer for ever.
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
_READ_BYTES = 1024 * 1024
_MAX_WRITE_BYTES = 1024 * 1024
_POLL_S = 0.1  # how often `stopped` is asked
_POLL_MS = 100
LINGER_S = 0.2
GRACE_S = 2.0


class LineReader:
    """Reads lines from a file descriptor: a pipe, a terminal, a file. For one thread.

    A line comes without its line end, LF or CR LF. `stopped()` is polled while no input comes.
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
        self._incomplete = b""

    def batches(self) -> Iterator[list[bytes]]:
        """Lists of lines, none empty, until the input ends or `stopped()`. Blocks between them.

        A list is complete when it has about `max_lines` or `max_bytes`, or when its first line has
        waited for `LINGER_S`. When stopped, the last list has the complete lines that have arrived.
        """
        lines: list[bytes] = []
        held_bytes = 0
        due_s = 0.0
        while not self._stopped():
            chunk = self._read(max(0.0, due_s - self._clock.monotonic_s()) if lines else _POLL_S)
            if chunk == b"":
                if self._incomplete:
                    lines.append(self._incomplete)
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
        """None when nothing has arrived in time; empty at the end of the input."""
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            return None
        return os.read(self._descriptor, _READ_BYTES)

    def _split(self, chunk: bytes) -> list[bytes]:
        *whole, self._incomplete = (self._incomplete + chunk).split(b"\n")
        return [line.removesuffix(b"\r") for line in whole]


class LineWriter:
    """Writes to a file descriptor without a buffer of its own. For one thread.

    The bytes that `write` counts are in the pipe or the file. While a reader does not read,
    `stopped()` is polled; once it is true, the reader has `grace_s` more.
    """

    def __init__(
        self, descriptor: int, stopped: Callable[[], bool], *, grace_s: float = GRACE_S
    ) -> None:
        self._descriptor = descriptor
        self._stopped = stopped
        self._grace_ms = grace_s * 1000
        kind = os.fstat(descriptor).st_mode
        self._is_pipe = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        # A pipe that poll() reports as writable accepts PIPE_BUF bytes without blocking.
        self._max_write_bytes = select.PIPE_BUF if self._is_pipe else _MAX_WRITE_BYTES
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._error_poll = select.poll()
        self._error_poll.register(descriptor, 0)

    @property
    def reader_is_gone(self) -> bool:
        """Whether nobody reads from the pipe any more. False for a file."""
        return self._is_pipe and any(
            event & select.POLLERR for _, event in self._error_poll.poll(0)
        )

    def write(self, data: bytes) -> int:
        """Write, and return the number of bytes written: all of them, unless stopped.

        Blocks while the reader does not read. Raises BrokenPipeError when there is no reader, and
        OSError.
        """
        rest = memoryview(data)
        waited_ms = 0
        while rest:
            if self._poll.poll(_POLL_MS):
                rest = rest[os.write(self._descriptor, rest[: self._max_write_bytes]) :]
            elif self._stopped():
                waited_ms += _POLL_MS
                if waited_ms >= self._grace_ms:
                    break
        return len(data) - len(rest)
