"""Writing lines to a pipe or a file, so that neither a reader that is slow nor one that is gone
holds the writer up for ever.
"""

from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_MS = 100
_MOST_AT_ONCE = 1024 * 1024
GRACE_S = 2.0


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
