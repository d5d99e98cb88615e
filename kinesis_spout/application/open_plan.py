"""The plan that a Spark job has left open. A plan is what one batch of the job reads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from state.errors import ConflictError
from state.plan import PlanStatus

if TYPE_CHECKING:
    from state.plan import Plan
    from state.store.plans import PlanStore

log = logging.getLogger("kinesis_spout")


def close_open_plan(plans: PlanStore) -> None:
    """Close the newest plan if it is open, so that no task of that batch publishes a result any
    more. A write of the owner; blocks.

    The plan is not settled: no outcome is taken over. When Spark owns the application again, it
    compares each result with the position that is stored then.
    """
    while True:
        pointer = plans.pointer()
        if pointer is None or pointer.status is not PlanStatus.OPEN:
            return
        try:
            plans.close(pointer.id)
        except ConflictError:
            continue  # another task of this application closes it too: look again
        log.warning(
            "plan %s, which a Spark job of this application left open, is closed. Its unsettled "
            "records are read again from the stored positions",
            pointer.id,
        )
        return


def closed_plan(plans: PlanStore) -> Plan | None:
    """The newest plan, closed; None if there is none. A write of the owner; blocks."""
    close_open_plan(plans)
    pointer = plans.pointer()
    return None if pointer is None else plans.read(pointer.id)
