"""What the job writes to does not answer for a while."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesis_spout.drills.spark_arguments import Outage
from kinesis_spout.drills.world.spark_conf import OUTAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.drills.world.world import World

_STARTS = 2  # of the job while it lasts
_FAILING_S = 12.0  # a record that used up its retries would die sooner


def sink_outage(world: World) -> None:
    """The function raises, so each batch fails, and the job with it."""
    _ending(world, Outage.SINK)


def dead_letter_outage(world: World) -> None:
    """The function for dead letters raises, so each batch with a letter fails."""
    _ending(world, Outage.LETTERS)


def record_outage(world: World) -> None:
    """Every record fails. The job goes on by itself."""
    began_ns = time.monotonic_ns()
    with _outage(world, Outage.RECORDS):
        world.wait_s(_FAILING_S)
    world.note_fault(f"every record failed for {_FAILING_S:.0f} s", began_ns)


def _ending(world: World, outage: Outage) -> None:
    """An outage that ends the job. It ends again where it is started too early."""
    with _outage(world, outage):
        for start in range(_STARTS):
            if start:
                world.job.start()
            began_ns = time.monotonic_ns()
            run, _ = world.wait_for_end(f"the outage of {outage}")
            world.note_fault(f"{run} ended of an outage of {outage}", began_ns, run=run)
    world.job.start()


@contextmanager
def _outage(world: World, outage: Outage) -> Iterator[None]:
    file = world.directory / OUTAGES / outage
    file.parent.mkdir(exist_ok=True)
    file.touch()
    try:
        yield
    finally:
        file.unlink()
