"""A record that kills each process that gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import Step
from kinesis_spout.drills.teller import POISON
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from kinesis_spout.drills.world.world import World

_MOST_RESTARTS = 40
_LIMIT_S = 600.0


def poison(world: World) -> None:
    """Start the job again each time, as a supervisor would, until the record is a dead letter."""
    world.max_restarts = _MOST_RESTARTS
    world.job.start()
    world.wait_until(lambda: _is_letter(world), "the dead letter of the poison", limit_s=_LIMIT_S)


def _is_letter(world: World) -> bool:
    world.files.read()
    return any(
        told.step is Step.LETTER and (told.key, told.number) == POISON and UNANSWERED in told.reason
        for told in world.files.told()
    )
