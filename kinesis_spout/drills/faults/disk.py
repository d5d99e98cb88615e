"""A disk without space."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

import psutil

from kinesis_spout.drills.faults.kills import wait_for_published
from kinesis_spout.drills.world.job import DrillError

if TYPE_CHECKING:
    from kinesis_spout.drills.world.world import World


def disk_full(world: World) -> None:
    """No write to a file succeeds in the driver's JVM, which writes the checkpoint location and the
    output: the limit of its files is lowered, in the middle of a batch. A new job has its own
    limit, as when there is space again.
    """
    run, pid = next(iter(world.job.pids().items()))
    jvm = next(
        (one for one in psutil.Process(pid).children() if one.name() == "java"),
        None,
    )
    if jvm is None:
        raise DrillError(f"{run} has no JVM")
    _, most = jvm.rlimit(resource.RLIMIT_FSIZE)
    wait_for_published(world)
    began_ns = time.monotonic_ns()
    jvm.rlimit(resource.RLIMIT_FSIZE, (0, most))
    run, _ = world.wait_for_end("the full disk")
    world.note_fault("no space for what the driver writes", began_ns, run=run)
    world.job.start()
