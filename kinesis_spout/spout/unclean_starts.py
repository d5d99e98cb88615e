"""How often in a row the spouts of this task have ended without being closed.

The store has the number. A spout adds itself when it opens, and sets it to 0 when it is closed in
order. A spout that has outlived the records which may have ended those before it sets it to 1: only
itself is left to count.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_spout.spout.services import SpoutContext
    from state.sequence_number import SequenceNumber

log = logging.getLogger("kinesis_spout")
MAX_UNCLEAN = 2  # from so many openings in a row on, the next spout isolates its deliveries
ISOLATED_RECORDS = 1_000  # for each of these openings, but not for more than ten
_MAX_OPENINGS = 10


class UncleanStarts:
    """One per open spout. Blocks on the store. For one thread."""

    def __init__(self, context: SpoutContext) -> None:
        self._ownership = context.services.store.ownership
        self._now_ms = context.now_ms
        self._scheduler = context.scheduler
        self._changed = context.changed
        self._count = 0
        self._emitted_before: int | None = 0  # isolation; None during it
        self._marks: dict[str, SequenceNumber] | None = None

    def begin(self) -> None:
        """Count this opening, before its first record goes out."""
        before = self._ownership.read_unclean_starts()
        self._count = before + 1
        self._ownership.save_unclean_starts(self._count)
        if before < MAX_UNCLEAN:
            return
        self._emitted_before = None
        with self._changed:
            self._scheduler.rotation.isolate(ISOLATED_RECORDS * min(before, _MAX_OPENINGS))
        log.warning(
            "the last %d spouts of this task ended without being closed. A record may have ended "
            "their processes. So records are delivered one at a time for a while, and each "
            "attempt is counted before its delivery",
            before,
        )

    def on_commit(self) -> None:
        """After a commit: note whether this spout has outlived what may have ended those before
        it.
        """
        if self._count <= 1:
            return
        with self._changed:
            has_outlived = self._has_outlived()
        if has_outlived:
            self._ownership.save_unclean_starts(1)
            self._count = 1

    def end(self) -> None:
        """The spout is closed in order, and all outcomes are stored."""
        self._ownership.save_unclean_starts(0)

    def _has_outlived(self) -> bool:
        """Whether all that was in flight when an earlier spout ended has an outcome: the records
        that it left, and as many new ones as can have been in flight, or all that there are.
        """
        rotation = self._scheduler.rotation
        if rotation.isolation.is_on or rotation.has_restored(self._now_ms()):
            return False
        if rotation.is_idle:
            return True
        emitted = self._scheduler.counts().emitted
        if self._emitted_before is None:
            self._emitted_before = emitted
        if self._marks is None:
            if emitted - self._emitted_before >= ISOLATED_RECORDS:
                self._marks = rotation.marks()
            return False
        return rotation.has_passed(self._marks)
