"""How many bytes of pushed events the subscriptions of a task hold together.

An event is charged while its bytes come, and until it was handed over. While there is no room, a
subscription receives nothing more, and the service waits. Two go on nevertheless, so that nobody
waits for ever: the first that asks, for one event, until that was handed over; and one whose event
somebody waits for, as what fills the room may be handed over only after that.

So what is held has a bound: the room, one receive of each subscription, and two events.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Held:
    """What all shares of a room hold. `first`: the share that goes on without room."""

    max_bytes: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    count: int = 0
    first: RoomShare | None = None


class EventRoom:
    """The bytes of all subscriptions of a task. Any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._held = _Held(max_bytes)

    @property
    def held_bytes(self) -> int:
        with self._held.changed:
            return self._held.count

    def share(self) -> RoomShare:
        """The share of one subscription, to be closed with it."""
        return RoomShare(self._held)


class RoomShare:
    """What one subscription holds of an `EventRoom`. Any thread; only `wait` blocks."""

    def __init__(self, held: _Held) -> None:
        self._held = held
        self._changed = held.changed
        self._bytes = 0
        self._is_closed = False
        self._is_demanded = False
        self._has_event = False

    def wait(self) -> None:
        """Wait until more may be received, or this is closed."""
        with self._changed:
            self._changed.wait_for(self._may_receive)

    def charge(self, count: int) -> None:
        """So many bytes were received."""
        with self._changed:
            if not self._is_closed:
                self._add(count)

    def release(self, count: int) -> None:
        """An event of so many bytes is not held any more."""
        with self._changed:
            self._has_event = False
            self._give_way()
            self._add(-min(count, self._bytes))

    def on_event(self) -> None:
        """An event is complete: this subscription goes on when there is room again."""
        with self._changed:
            self._is_demanded = False
            self._has_event = True

    def demand(self) -> None:
        """Somebody waits for the next event of this subscription."""
        with self._changed:
            self._is_demanded = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing more is received. What was received is still held."""
        with self._changed:
            self._is_closed = True
            self._give_way()
            self._changed.notify_all()

    def close(self, *, kept_bytes: int = 0) -> None:
        """Nothing more is received, and only `kept_bytes` are still held, to be released."""
        self.stop()
        with self._changed:
            self._add(-max(0, self._bytes - kept_bytes))

    # private, with the lock
    def _may_receive(self) -> bool:
        held = self._held
        if self._is_closed or self._is_demanded or held.count < held.max_bytes:
            return True
        if self._has_event:
            return False
        held.first = held.first or self
        return held.first is self

    def _add(self, count: int) -> None:
        self._bytes += count
        self._held.count += count
        self._changed.notify_all()

    def _give_way(self) -> None:
        if self._held.first is self:
            self._held.first = None
            self._changed.notify_all()
