"""A persistent watch of one znode. A ZooKeeper watch fires once, and kazoo drops it when the
connection is lost.

The watch is set again before the callback runs, so a reader that reacts to the callback misses no
later change. A request to set it that fails is not repeated here: it fails only with the
connection, and the next connection sets all watches again.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kazoo.protocol.states import Callback, EventType

if TYPE_CHECKING:
    from collections.abc import Callable


class NodeWatch:
    """Watches one node. The callback runs in kazoo's thread for watches. Setting the watch never
    blocks.
    """

    def __init__(self, path: str, callback: Callable[[], None]) -> None:
        self._path = path
        self._callback = callback
        self._client: Any = None

    def set(self, client: Any) -> Any:
        """Send the request that sets the watch; returns kazoo's pending answer."""
        self._client = client
        # `exists` also watches for the creation of a node that does not exist yet.
        return client.exists_async(self._path, watch=self._on_event)

    def set_and_tell(self, client: Any) -> None:
        """Set the watch, and call back once it is set: the node may have changed in between."""
        self.set(client).rawlink(functools.partial(self._tell, client))

    def _on_event(self, event: Any) -> None:
        # NONE is a change of the connection. After a lost one, `ZookeeperTree` sets the watches.
        if event.type != EventType.NONE:
            self.set_and_tell(self._client)

    def _tell(self, client: Any, answer: Any) -> None:
        """Call back, but in kazoo's thread for watches. This method runs in its thread for answers,
        on which every call of the store waits.
        """
        if answer.successful():
            client.handler.dispatch_callback(Callback("watch", self._callback, ()))
