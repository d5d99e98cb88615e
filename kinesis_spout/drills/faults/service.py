"""Faults of the service, which only our own Kinesis makes on demand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.testing import (
    drop,
    expired_iterator,
    service_unavailable,
    slow,
    throttle,
    truncate,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.drills.world.world import World
    from kinesis_spout.testing import Fault as ServiceFault

READ, ITERATOR = "GetRecords", "GetShardIterator"
_BROWN_OUT_S = 5.0
_FAULTY_S = 4.0


def striking(
    name: str, *faults: ServiceFault, operations: tuple[str | None, ...], seconds: float
) -> Callable[[World], None]:
    """Each of the faults in turn strikes all calls of each operation, for so many seconds in all.
    None: any operation.
    """

    def act(world: World) -> None:
        fake = world.stream.fake
        if fake is None:
            raise DrillError(f"{name} needs the drill's own Kinesis")
        struck_before = len(fake.faults.struck)
        began_ns = time.monotonic_ns()
        for fault in faults:
            fake.faults.clear()
            for operation in operations:
                fake.faults.add(fault, operation=operation, times=None)
            world.wait_s(seconds / len(faults))
        fake.faults.clear()
        world.note_fault(name, began_ns)
        world.notes.append(f"{len(fake.faults.struck) - struck_before} calls were struck")

    return act


throttling = striking("throttled reads", throttle(), operations=(READ,), seconds=_FAULTY_S)
brown_out = striking(
    "no call answered", service_unavailable(), operations=(None,), seconds=_BROWN_OUT_S
)
expired_iterators = striking(
    "every iterator expired", expired_iterator(), operations=(READ,), seconds=_FAULTY_S
)
slow_and_truncated = striking(
    "slow, dropped and truncated answers",
    slow(0.5),
    truncate(),
    drop(processed=True),
    operations=(READ, ITERATOR),
    seconds=2 * _FAULTY_S,
)
