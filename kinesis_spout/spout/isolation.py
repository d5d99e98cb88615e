"""Isolated delivery finds a record that ends its process at each delivery. Pure: times are
arguments.

Such a record comes again in every process after it, and its attempts are never counted, because
none of its deliveries has an outcome. So after two starts in a row whose spouts were not closed
(`UncleanStarts`), the same records go out in the same order, but one at a time over all shards, and
each only once its shard's stored state has the delivery as a failed attempt. A process that ends
now has counted an attempt of this one record, and of no other. In the end the record is exhausted
and dead-lettered like any other.

The outcome of an isolated delivery takes the place of the announced failure, so a delivery that is
answered counts once. Isolation ends after enough deliveries, or when all shards are at their tips,
once the last outcome is stored. It goes on as long as a record is left that was announced by a
process which then ended.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.spout.emission import SpoutEmission


class Phase(IntEnum):
    """How far an isolated delivery has come. It may be settled from any phase: a late ack of an
    earlier attempt may come first, or its shard is released.
    """

    ANNOUNCED = 0  # in its shard's state, which is not stored yet
    STORED = 1  # the store has it as a failed attempt
    OUT = 2  # the program has it
    SETTLED = 3  # the store has its outcome


class IsolatedDelivery:
    """A delivery from its announcement until its outcome is stored."""

    __slots__ = ("_asked_with_outcome", "emission", "phase")

    def __init__(self, emission: SpoutEmission) -> None:
        self.emission = emission
        self.phase = Phase.ANNOUNCED
        self._asked_with_outcome: bool | None = None

    @property
    def has_outcome(self) -> bool:
        """Whether it was acked or failed, or its shard was released."""
        assigned = self.emission.assigned
        return assigned.is_released or not assigned.shard.is_pending(self.emission)

    @property
    def may_go_out(self) -> bool:
        return self.phase is Phase.STORED

    @property
    def is_out(self) -> bool:
        return self.phase >= Phase.OUT

    @property
    def is_settled(self) -> bool:
        return self.phase is Phase.SETTLED

    def asks_for_commit(self) -> bool:
        """Whether a commit is needed now. True once for the announcement, and once for the
        outcome.
        """
        has_outcome = self.has_outcome
        is_stored = self.phase >= (Phase.SETTLED if has_outcome else Phase.STORED)
        if is_stored or self._asked_with_outcome is has_outcome:
            return False
        self._asked_with_outcome = has_outcome
        return True

    def on_commit(self, *, with_outcome: bool) -> None:
        """The state of its shard is stored, as it was with or without the outcome."""
        self.phase = max(self.phase, Phase.SETTLED if with_outcome else Phase.STORED)


class Isolation:
    """Whether records go out one at a time, and the last one that was announced, `delivery`: None
    when isolation is off, and until the first one. One per spout; the caller holds its lock.
    """

    def __init__(self) -> None:
        self.delivery: IsolatedDelivery | None = None
        self._deliveries_left: int | None = None  # None: off
        self._ends_when_settled = False

    @property
    def is_on(self) -> bool:
        return self._deliveries_left is not None

    @property
    def is_complete(self) -> bool:
        """Whether there were as many deliveries as it was begun for."""
        return not self._deliveries_left

    @property
    def waits_for_outcome(self) -> bool:
        """Whether a delivery was announced that has no outcome: no other record goes out."""
        return self.delivery is not None and not self.delivery.has_outcome

    @property
    def last(self) -> IsolatedDelivery | None:
        """The last delivery, where isolation ends once its outcome is stored; else None."""
        return self.delivery if self._ends_when_settled else None

    def begin(self, deliveries: int) -> None:
        """Isolate so many deliveries, at least until there is nothing left to deliver."""
        self._deliveries_left = max(deliveries, self._deliveries_left or 0)
        self._ends_when_settled = False

    def announce(self, emission: SpoutEmission, now_ms: int) -> None:
        """Let the state of its shard have a delivery, which was just taken from the shard, as a
        failed attempt.
        """
        emission.assigned.shard.announce(emission, now_ms)
        emission.assigned.is_dirty = True
        self.delivery = IsolatedDelivery(emission)
        self._ends_when_settled = False

    def take(self, deadline_ms: int | None) -> SpoutEmission | None:
        """The delivery that was announced, for the program: once, and only when it is stored."""
        delivery = self.delivery
        if delivery is None or not delivery.may_go_out:
            return None
        delivery.phase = Phase.OUT
        self._deliveries_left = max(0, (self._deliveries_left or 0) - 1)
        delivery.emission.assigned.shard.extend(delivery.emission, deadline_ms)
        return delivery.emission

    def withdraw(self) -> None:
        """Take the announced attempt back, as at an orderly end: no outcome was due to a crash."""
        if self.delivery is not None and self.waits_for_outcome:
            assigned = self.delivery.emission.assigned
            assigned.shard.withdraw()
            assigned.is_dirty = True

    def end(self) -> bool:
        """Deliver at full speed again, once the last outcome is stored: else a crash would cost the
        record of that outcome an attempt. Returns whether it has ended.
        """
        self._ends_when_settled = self.delivery is not None and not self.delivery.is_settled
        if self._ends_when_settled:
            return False
        self.delivery = self._deliveries_left = None
        return True
