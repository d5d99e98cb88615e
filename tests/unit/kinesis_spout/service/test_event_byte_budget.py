"""What subscriptions hold together has a bound, and nobody waits for ever for room."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kinesis_spout.service.subscription import EventByteBudget

if TYPE_CHECKING:
    from kinesis_spout.service.subscription import EventShare

PATIENCE_S = 20.0


class Waiting:
    """A thread that waits for room."""

    def __init__(self, share: EventShare) -> None:
        self._thread = threading.Thread(target=share.wait, daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        self._thread.join(PATIENCE_S)
        return not self._thread.is_alive()

    @property
    def waits(self) -> bool:
        self._thread.join(0.05)
        return self._thread.is_alive()


def full() -> tuple[EventByteBudget, EventShare]:
    budget = EventByteBudget(100)
    holder = budget.share()
    holder.charge(100)
    return budget, holder


def test_one_goes_on_without_room_for_one_event_and_then_the_next() -> None:
    """Once its event was handed over: complete events of all would have no bound."""
    budget, _ = full()
    first, second = budget.share(), budget.share()
    assert Waiting(first).goes_on
    assert Waiting(first).goes_on  # an event may take several receives
    first.charge(10)
    waiting = Waiting(second)
    assert waiting.waits
    first.on_event()
    assert waiting.waits
    first.release(10)
    assert waiting.goes_on


def test_one_that_is_demanded_goes_on_until_its_event_is_complete() -> None:
    budget, _ = full()
    first, demanded = budget.share(), budget.share()
    assert Waiting(first).goes_on
    waiting = Waiting(demanded)
    assert waiting.waits
    demanded.demand()
    assert waiting.goes_on
    demanded.on_event()
    assert Waiting(demanded).waits


def test_one_that_is_closed_waits_no_more_and_holds_what_was_not_handed_over() -> None:
    budget, holder = full()
    assert Waiting(budget.share()).goes_on
    waiting = Waiting(holder)
    holder.close(kept_bytes=30)
    assert waiting.goes_on
    assert budget.held_bytes == 30
    holder.charge(50)  # what its thread received meanwhile is dropped
    assert budget.held_bytes == 30
    holder.release(30)
    holder.release(30)
    assert budget.held_bytes == 0
