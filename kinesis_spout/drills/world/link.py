"""A TCP link on loopback that a drill can cut: it stands between a client and a server."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_CHUNK_BYTES = 65_536


class Link:
    """Forwards every connection to `target`, a `host:port`, until it is cut or stalled.

    - `cut` closes all connections and every new one at once: both sides see an error.
    - `stall` forwards nothing and closes nothing: neither side sees anything, as when a network
      drops all packets.
    - `restore` ends both. What a stall has held back is delivered then.

    All methods may be called from any thread. Use it in a with block, which sets `address`.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.address = ""
        self._loop: asyncio.AbstractEventLoop
        self._is_ready, self._ending = threading.Event(), asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="link", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        """End every connection and the thread."""
        self.cut()
        self._call(self._ending.set)
        self._thread.join()

    def cut(self) -> None:
        self._is_cut = True
        self._call(lambda: _abort(self._open))

    def stall(self) -> None:
        self._call(self._flows.clear)

    def restore(self) -> None:
        self._is_cut = False
        self._call(self._flows.set)

    def _call(self, act: Callable[[], object]) -> None:
        """In the loop's thread."""
        self._loop.call_soon_threadsafe(act)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_ready.set()
        await self._ending.wait()
        server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = {writer}
        self._open |= pair
        try:
            if not self._is_cut:
                answers, server = await asyncio.open_connection(*self._target)
                pair.add(server)
                self._open |= pair
            if not self._is_cut:
                await asyncio.gather(self._pump(reader, server), self._pump(answers, writer))
        except OSError:
            pass  # the target refuses
        finally:
            self._open -= pair
            _abort(pair)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Forward one direction to its end."""
        with suppress(OSError):
            while data := await source.read(_CHUNK_BYTES):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
            sink.write_eof()


def _abort(writers: Iterable[asyncio.StreamWriter]) -> None:
    for one in writers:
        one.transport.abort()
