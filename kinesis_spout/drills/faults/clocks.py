"""Clocks that jump: the service's, and that of the job's processes. Forward and back, by minutes
and by hours.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from kinesis_spout.drills.faults.kills import below, resume
from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.kinesis import OwnStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.drills.world.world import World

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
# Each in ms ahead of the right time. They stay within the stream's retention of 24 hours.
_JUMPS = (10 * _MINUTE_MS, -10 * _MINUTE_MS, 6 * _HOUR_MS, -6 * _HOUR_MS, 0)
_OF_STARTS = (6 * _HOUR_MS, -6 * _HOUR_MS, 0)
_BETWEEN_S = 2.0
_OF_OTHERS = 2  # shards that another process of the job may have
_AGAIN = 30


def service_clock(world: World) -> None:
    """Iterators expire at once, and records have arrived in the future."""
    stream = world.stream
    if not isinstance(stream, OwnStream):
        raise DrillError("only the clock of the drill's own Kinesis can be set")

    def set_it(ahead_ms: int) -> None:
        stream.clock.ahead_ms = ahead_ms

    _jump(world, "the service's clock", set_it)


def job_clock(world: World) -> None:
    """While the job runs, and again for its successor: that finds times in the states that are
    hours ahead. Retries wait by this clock, so they may be early; none may wait for hours.
    """
    _jump(world, "the job's clock", world.job_clock.set)
    for ahead_ms in _OF_STARTS:
        world.wait_until(lambda: _is_stopped_with_retries(world), "a stored retry")
        world.faults.append(world.job.kill("kill -9 of the driver"))
        world.job_clock.set(ahead_ms)
        run = world.job.start()
        world.tell(f"{run}: its clock is {ahead_ms / _HOUR_MS:+.0f} h ahead")
        world.wait_for_acks(_AGAIN)


def _is_stopped_with_retries(world: World) -> bool:
    """Stop the first process, and see whether its states have failed records. If they do not, it
    goes on.
    """
    pid = next(iter(world.job.pids().values()))
    members = [psutil.Process(pid), *below(pid)]
    for one in members:
        with suppress(psutil.NoSuchProcess):
            one.suspend()
    states = (world.stored.read() or {}).values()
    waiting = sum(any(one.attempts for one in state.unresolved) for state in states)
    if waiting > _OF_OTHERS:
        return True
    resume(members)
    return False


def _jump(world: World, what: str, set_it: Callable[[int], None]) -> None:
    for ahead_ms in _JUMPS:
        began_ns = time.monotonic_ns()
        set_it(ahead_ms)
        name = f"{what} {ahead_ms / _MINUTE_MS:+.0f} min"
        world.note_fault(name, began_ns)
        world.wait_s(_BETWEEN_S)
        world.wait_for_acks(_AGAIN)
