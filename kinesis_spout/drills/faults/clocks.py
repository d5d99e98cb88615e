"""Clocks that jump: the service's, and that of the job's processes. Forward and back, by minutes
and by hours.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import psutil

from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.kinesis import OwnStream
from kinesis_spout.programs.processes import descendants, resume, suspend

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.drills.world.world import World

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
# Each in ms ahead of the right time. They stay within the stream's retention of 24 hours.
_JUMPS = (10 * _MINUTE_MS, -10 * _MINUTE_MS, 6 * _HOUR_MS, -6 * _HOUR_MS, 0)
_OF_STARTS = (6 * _HOUR_MS, -6 * _HOUR_MS, 0)
_BETWEEN_S = 2.0
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
    before_ms = _JUMPS[-1]
    for ahead_ms in _OF_STARTS:
        world.wait_until(partial(_is_stopped_with_retries, world, before_ms), "a stored retry")
        world.faults.append(world.job.kill("kill -9 of the driver"))
        world.job_clock.set(ahead_ms)
        run = world.job.start()
        world.tell(f"{run}: its clock is {ahead_ms / _HOUR_MS:+.0f} h ahead")
        world.wait_for_acks(_AGAIN)
        before_ms = ahead_ms


def _is_stopped_with_retries(world: World, ahead_ms: int) -> bool:
    """Stop the first process, and see whether the states have a record that has failed by its
    clock. If they do not, it goes on. It has just begun, perhaps, and stored nothing yet.
    """
    pid = next(iter(world.job.pids().values()))
    members = [psutil.Process(pid), *descendants(pid)]
    suspend(members)
    its_now_ms = time.time_ns() // 1_000_000 + ahead_ms
    states = (world.stored.read() or {}).values()
    failures_ms = [one.last_failure_ms for state in states for one in state.unresolved]
    if any(ms is not None and abs(ms - its_now_ms) < _HOUR_MS for ms in failures_ms):
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
