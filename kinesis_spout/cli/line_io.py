"""Lines through file descriptors: `line_batches` reads them in batches, `LineWriter` writes them,
`LineSplitter` cuts a stream of bytes into them.

Neither blocks for ever. A line that has arrived does not wait long for others. A reader that is
slow or gone does not block the writer for ever.
"""

import os
import select
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kinesis_spout.clock import SystemClock

_READ_BYTES = 1024 * 1024
_MAX_WRITE_BYTES = 1024 * 1024
_POLL_MS = 100  # how often `stopped` is asked
LINGER_S = 0.2
GRACE_S = 2.0
HEAD_BYTES = 64 * 1024


class LongLine(NamedTuple):
    """A line above the limit: its first bytes (up to `HEAD_BYTES`), and how many it has in all."""

    head: bytes
    size_bytes: int


@dataclass
class LineSplitter:
    """Cuts a stream of bytes into lines, in time and memory that are linear in the bytes.

    A line comes without its line end, LF or CR LF. Of a line above `max_line_bytes` only the head
    is kept.
    """

    max_line_bytes: int
    _parts: list[bytes] = field(default_factory=list)  # of the line that has no end yet
    _size_bytes: int = 0
    _is_long: bool = False

    def feed(self, chunk: bytes) -> list[bytes | LongLine]:
        """The lines that end in this chunk."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | LongLine] = []
        for end in ends:
            self._add(end)
            lines.append(self._take())
        self._add(rest)
        return lines

    def rest(self) -> bytes | LongLine | None:
        """The last line, if it has no line end; None if there is none."""
        return self._take() if self._size_bytes else None

    def _add(self, part: bytes) -> None:
        self._size_bytes += len(part)
        if not self._is_long:
            self._parts.append(part)
            self._is_long = self._size_bytes > self.max_line_bytes
            if self._is_long:
                self._parts = [b"".join(self._parts)[:HEAD_BYTES]]

    def _take(self) -> bytes | LongLine:
        whole, size_bytes, is_long = b"".join(self._parts), self._size_bytes, self._is_long
        self._parts, self._size_bytes, self._is_long = [], 0, False
        return LongLine(whole, size_bytes) if is_long else whole.removesuffix(b"\r")


def line_batches(
    descriptor: int,
    stopped: Callable[[], bool],
    *,
    max_lines: int,
    max_bytes: int,
    max_line_bytes: int,
) -> Iterator[list[bytes | LongLine]]:
    """Lists of lines of a file descriptor (a pipe, a terminal, a file), none empty, until the input
    ends or `stopped()`, which is polled while no input comes. Blocks between them.

    A list is complete when it has about `max_lines` or `max_bytes`, or when its first line has
    waited for `LINGER_S`. When stopped, the last list has the complete lines that have arrived.
    """
    lines: list[bytes | LongLine] = []
    splitter, clock, held_bytes, due_s = LineSplitter(max_line_bytes), SystemClock(), 0, 0.0
    while not stopped():
        wait_s = max(0.0, due_s - clock.monotonic_s()) if lines else _POLL_MS / 1000
        has_arrived = select.select([descriptor], [], [], wait_s)[0]
        chunk = os.read(descriptor, _READ_BYTES) if has_arrived else None
        if chunk == b"":
            last = splitter.rest()
            lines += [] if last is None else [last]
            break
        if not lines:
            due_s = clock.monotonic_s() + LINGER_S
        if chunk is not None:
            lines += splitter.feed(chunk)
            held_bytes += len(chunk)
        is_full = len(lines) >= max_lines or held_bytes >= max_bytes
        if lines and (is_full or clock.monotonic_s() >= due_s):
            yield lines
            lines, held_bytes = [], 0
    if lines:
        yield lines


class LineWriter:
    """Writes to a file descriptor without a buffer of its own. For one thread.

    The bytes that `write` counts are in the pipe or the file. While a reader does not read,
    `stopped()` is polled; once it is true, the reader has `GRACE_S` more.
    """

    def __init__(self, descriptor: int, stopped: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._stopped = stopped
        kind = os.fstat(descriptor).st_mode
        self._is_pipe = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        # A pipe that poll() reports as writable accepts PIPE_BUF bytes without blocking.
        self._max_write_bytes = select.PIPE_BUF if self._is_pipe else _MAX_WRITE_BYTES

    def _poll(self, event: int, timeout_ms: int) -> int:
        """The events of the descriptor: this one, or an error."""
        poll = select.poll()
        poll.register(self._descriptor, event)
        return next((found for _, found in poll.poll(timeout_ms)), 0)

    @property
    def reader_is_gone(self) -> bool:
        """Whether nobody reads from the pipe any more. False for a file."""
        return self._is_pipe and bool(self._poll(0, 0) & select.POLLERR)

    def write(self, data: bytes) -> int:
        """Write, and return the number of bytes written: all of them, unless stopped.

        Blocks while the reader does not read. Raises BrokenPipeError when there is no reader, and
        OSError.
        """
        rest = memoryview(data)
        waited_ms = 0
        while rest:
            if self._poll(select.POLLOUT, _POLL_MS):
                rest = rest[os.write(self._descriptor, rest[: self._max_write_bytes]) :]
            elif self._stopped():
                waited_ms += _POLL_MS
                if waited_ms >= GRACE_S * 1000:
                    break
        return len(data) - len(rest)
