"""Careful delivery: how a record that ends its process at each delivery is found. Pure.

A record that makes its process crash or be killed comes again in every process after it, and its
attempts are never counted, because none of its deliveries has an outcome. So after two openings in
a row that ended without being closed (`kinesis_spout.spout.openings`), a spout delivers carefully:
one record at a time over all its shards, and each only once its shard's stored state has the
delivery as a failed attempt. A process that ends now has counted an attempt of this one record, and
of no other. In the end the record is exhausted and dead-lettered like any other.

Its outcome takes the place of the announced failure, so a delivery that is answered counts once.
Careful delivery ends after enough answers, or when all shards are at their tips, once the last
outcome is stored. It goes on as long as a record is left that was announced by a process which then
ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.spout.scheduler import SpoutDelivery


class CarefulDelivery:
    """A delivery from its announcement until its outcome is stored. `is_announced`: the store has
    it as a failed attempt. `is_out`: the user has it. `is_settled`: the store has its outcome.
    """

    __slots__ = ("_asked_with_outcome", "delivery", "is_announced", "is_out", "is_settled")

    def __init__(self, delivery: SpoutDelivery) -> None:
        self.delivery = delivery
        self.is_announced = False
        self.is_out = False
        self.is_settled = False
        self._asked_with_outcome: bool | None = None

    @property
    def has_outcome(self) -> bool:
        """Whether it was acked or failed, or its shard was released."""
        assigned = self.delivery.assigned
        return assigned.is_released or not assigned.shard.is_pending(self.delivery)

    @property
    def may_go_out(self) -> bool:
        return self.is_announced and not self.is_out

    def asks_for_commit(self) -> bool:
        """Whether a commit is needed now. True once for the announcement, and once for the
        outcome.
        """
        has_outcome = self.has_outcome
        is_stored = self.is_settled if has_outcome else self.is_announced
        if is_stored or self._asked_with_outcome is has_outcome:
            return False
        self._asked_with_outcome = has_outcome
        return True

    def on_commit(self, *, with_outcome: bool) -> None:
        """The state of its shard is stored, as it was with or without the outcome."""
        if with_outcome:
            self.is_settled = True
        else:
            self.is_announced = True
