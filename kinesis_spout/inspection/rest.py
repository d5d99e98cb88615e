"""Whether a paused application has come to rest, as far as what is stored shows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.inspection.wording import are, records
from state.plan import PlanStatus

if TYPE_CHECKING:
    from state.store.view import StoredApplication


def unrest(before: StoredApplication, now: StoredApplication) -> str | None:
    """What is under way; None where nothing is: every plan is settled, every record is answered,
    and nothing was stored between the two looks. Without an owner nothing is under way.

    A spout stores nothing of records that are in their first delivery at the end of what was read;
    their acks show as a change.
    """
    if not now.owners:
        return None
    is_spout = now.total_tasks is not None
    plan = now.plan
    if plan is not None and not is_spout and plan.status is not PlanStatus.SETTLED:
        return f"the batch of plan {plan.plan_id} is not settled"
    pending = sum(
        one.count
        for state in now.states.values()
        for one in state.unresolved
        if is_spout and one.first_failure_ms is None
    )
    if pending:
        return f"{records(pending)} of the spout {are(pending)} not acked or failed yet"
    was = None if before.plan is None else before.plan.plan_id
    if before.states != now.states or was != (None if plan is None else plan.plan_id):
        return "the last outcomes have just been stored"
    return None
