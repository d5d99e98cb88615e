"""Whether a Spark job takes the failures of its records for an outage. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.report import ReportStatus

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look


def any_outage(look: Look) -> bool:
    return any(outage_until_ms(look, shard_id) is not None for shard_id in look.now.shard_ids)


def outage_until_ms(look: Look, shard_id: str) -> int | None:
    """When the job tries again, if it takes its last batch for an outage, and the shard is not in
    the batch under way; None otherwise.
    """
    plan = look.now.stored.plan
    if plan is None or look.now.is_spout or shard_id in look.now.planned:
        return None
    is_out = plan.outages > 0
    if plan.report is ReportStatus.DONE and plan.outcomes is not None:
        is_out = plan.outcomes.outage
    due_ms = [one.due_ms for state in look.now.states.values() for one in state.unresolved]
    return min(due_ms) if is_out and due_ms else None
