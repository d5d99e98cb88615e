"""The reports of tracked batches, and the policy of an application that tracks its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from state.report import OpenReport, OutcomePolicy, PlanReport


class ReportStore(Protocol):
    """The reports and the policy. A tracked batch is not the owner: its writes are fenced by the
    plan, as those of tasks are.

    Needs: a compare-and-set for the policy; for a report, one in a transaction with a check that
    the plan is open; for `clear_policy`, the owner's fence.
    """

    def read_policy(self) -> OutcomePolicy | None:
        """The policy of an application that tracks its records; None for one that acks batches."""

    def mark_tracked(self, policy: OutcomePolicy) -> None:
        """Mark the application as one that tracks its records, with this policy, or change its
        policy. Idempotent. Needs no ownership. Raises `ConflictError` when others keep writing it.
        """

    def clear_policy(self) -> None:
        """Remove the policy: whole batches are acked again. A write of the owner. Idempotent."""

    def open(self, plan_id: str, token: str) -> OpenReport:
        """Record that a batch of the plan has begun. It replaces any earlier report: one that was
        done no longer counts. Each opening counts as one without an answer (`OpenReport.openings`)
        until its report is finished, or `answer` says that its batch has failed.

        One transaction that also checks that the plan is open. Raises `PlanClosedError` when the
        plan is closed or removed, `ConflictError` when other processes keep writing the report.
        """

    def answer(self, opened: OpenReport) -> None:
        """Record that the batch has failed while its process lives. The report cannot be finished
        any more, and this opening does not count as one without an answer.

        Changes nothing if the plan is closed by now, or the report was opened again or finished.
        """

    def finish(self, opened: OpenReport, report: PlanReport) -> None:
        """Record that the batch is done, with its outcomes. A report that is too large for one node
        is stored in parts, and counts only once all of it is stored.

        A call whose answer was lost reads the report back and recognises its own by the token.
        Raises `PlanClosedError` when the plan is no longer open, and `ConflictError` when another
        process has opened the report since, or removed it.
        """

    def read(self, plan_id: str) -> PlanReport | None:
        """The done report of a plan; None if there is none, or if it is only open. Final when
        called after `PlanStore.close`.
        """
