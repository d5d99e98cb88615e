"""A watch of one znode that lasts. ZooKeeper's own fire once, and kazoo drops them with each lost
connection.

It is set again before anybody is told of a change, so that who then reads misses no later one. An
attempt that fails needs no other: it fails with the connection, and the next connection sets all
watches of its client.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kazoo.protocol.states import Callback, EventType

if TYPE_CHECKING:
    from collections.abc import Callable


class NodeWatch:
    """Calls back in kazoo's thread for watches; sets itself from its threads, and never blocks."""

    def __init__(self, path: str, callback: Callable[[], None]) -> None:
        self._path = path
        self._callback = callback
        self._client: Any = None

    def set(self, client: Any) -> Any:
        """Send the request, for a node that need not exist; returns kazoo's pending answer."""
        self._client = client
        return client.exists_async(self._path, watch=self._on_event)

    def set_and_tell(self, client: Any) -> None:
        """Set it, and call back once it is: something may have changed since it was set last."""
        self.set(client).rawlink(functools.partial(self._tell, client))

    def _on_event(self, event: Any) -> None:
        if event.type != EventType.NONE:  # that is a lost connection
            self.set_and_tell(self._client)

    def _tell(self, client: Any, answer: Any) -> None:
        """Not here: kazoo's thread for answers would be held up, which a call of the store waits
        for.
        """
        if answer.successful():
            client.handler.dispatch_callback(Callback("watch", self._callback, ()))
