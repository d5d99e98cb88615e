"""The report of a plan, and the policy of an application that tracks its records, as znodes.

A report is fenced by its plan, as results are: each of its writes checks that `batches/<planId>` is
in the version of an open plan. Opening a report creates or sets its node. Finishing it sets the
node again, based on the version that the opener made, so only the last opener can finish. The parts
of a large report are written before that.

An opening answers by finishing the report, or by saying that its batch has failed. The node counts
those that did neither: their processes died.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.codec.reports import (
    decode_header,
    decode_policy,
    decode_report,
    encode_open_report,
    encode_policy,
    encode_report,
)
from state.errors import ConflictError, PlanClosedError, StoredDataError
from state.failpoint import failpoint
from state.report import OpenReport, OutcomePolicy, PlanReport, ReportStatus
from state.znodes.nodes import Nodes
from state.znodes.paths import valid_name
from state.znodes.plans import OPEN_VERSION
from state.znodes.tree import Check, Delete, Set, TransactionRefusedError, put

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_ROUNDS = 8  # each needs another process to write between the read and the write here


class ReportZnodes(Nodes):
    """A `ReportStore`."""

    # policy ---------------------------------------------------------------------------------------
    def read_policy(self) -> OutcomePolicy | None:
        node = self._read(self._paths.tracked)
        return None if node is None else decode_policy(node.data, self._paths.tracked)

    def mark_tracked(self, policy: OutcomePolicy) -> None:
        self._write(self._paths.tracked, encode_policy(policy, self._paths.tracked))

    def clear_policy(self) -> None:
        node = self._read(self._paths.tracked)
        try:
            self._fence.commit([] if node is None else [Delete(self._paths.tracked)])
        except TransactionRefusedError:
            return  # another process has just removed it

    # report ---------------------------------------------------------------------------------------
    def open(self, plan_id: str, token: str) -> OpenReport:
        path = self._paths.report(plan_id)
        valid_name("report token", token)
        for _ in range(_MAX_ROUNDS):
            node = self._read(path)
            openings = 0 if node is None else _openings(node.data, path)
            write = put(path, encode_open_report(token, openings + 1, path), node)
            opened = OpenReport(
                plan_id=plan_id,
                token=token,
                version=0 if node is None else node.version + 1,
                openings=openings,
            )
            try:
                self._tree.commit([self._plan_is_open(plan_id), write])
            except TransactionRefusedError as refused:
                if refused.index == 0:
                    raise _closed(plan_id) from refused
                if not (
                    refused.uncertain and self._stands(opened, ReportStatus.OPEN, opened.version)
                ):
                    continue  # another process has just opened it
            return opened
        raise _contended(path)

    def answer(self, opened: OpenReport) -> None:
        path = self._paths.report(opened.plan_id)
        data = encode_open_report(opened.token, opened.openings, path)
        try:
            self._tree.commit([self._plan_is_open(opened.plan_id), Set(path, data, opened.version)])
        except TransactionRefusedError:
            return  # the plan is closed, or the report opened again: nobody asks for this answer

    def finish(self, opened: OpenReport, report: PlanReport) -> None:
        path = self._paths.report(opened.plan_id)
        if self._is_done(opened):
            return  # an earlier call's answer was lost
        if not self._stands(opened, ReportStatus.OPEN, opened.version):
            raise self._overtaken(opened)
        header, parts = encode_report(opened, report, path)
        plan_is_open = self._plan_is_open(opened.plan_id)
        # One that was overtaken writes no part either.
        guards = [plan_is_open, Check(path, opened.version)]
        for part, data in enumerate(parts):
            part_path = self._paths.report_part(opened.plan_id, opened.token, opened.version, part)
            try:
                self._write(part_path, data, guards)
            except TransactionRefusedError as refused:
                raise self._overtaken(opened) from refused
            failpoint("report-part-written")
        try:
            self._tree.commit([plan_is_open, Set(path, header, opened.version)])
        except TransactionRefusedError as refused:
            if not self._is_done(opened):
                raise self._overtaken(opened) from refused
        failpoint("report-done")

    def read(self, plan_id: str) -> PlanReport | None:
        path = self._paths.report(plan_id)
        node = self._read(path)
        header = None if node is None else decode_header(node.data, path)
        if header is None or header.status is ReportStatus.OPEN:
            return None
        # One request for each part: an answer with all of them might exceed ZooKeeper's limit.
        parts = [
            self._read(self._paths.report_part(plan_id, header.token, header.opened_version, part))
            for part in range(header.parts)
        ]
        return decode_report(header, [None if part is None else part.data for part in parts], path)

    def _write(self, path: str, data: bytes, guards: Sequence[Check] = ()) -> None:
        """Let the node hold `data`, whoever writes it. Raises `TransactionRefusedError` when one of
        the guards no longer holds, and `ConflictError` when others keep writing the node.
        """
        for _ in range(_MAX_ROUNDS):
            node = self._read(path)
            if node is not None and node.data == data:
                return
            if node is None and not guards:  # a guard's node is below `base`, so that is there
                self._tree.ensure(self._paths.base)
            try:
                self._tree.commit([*guards, put(path, data, node)])
            except TransactionRefusedError as refused:
                if refused.index < len(guards):
                    raise
                continue  # another process has written it, or this write's answer was lost
            return
        raise _contended(path)

    def _plan_is_open(self, plan_id: str) -> Check:
        return Check(self._paths.batch(plan_id), OPEN_VERSION)

    def _stands(self, opened: OpenReport, status: ReportStatus, version: int) -> bool:
        """Whether the node has this version and status, and was written by this opener."""
        path = self._paths.report(opened.plan_id)
        node = self._read(path)
        if node is None or node.version != version:
            return False
        header = decode_header(node.data, path)
        return header.token == opened.token and header.status is status

    def _is_done(self, opened: OpenReport) -> bool:
        return self._stands(opened, ReportStatus.DONE, opened.version + 1)

    def _overtaken(self, opened: OpenReport) -> PlanClosedError | ConflictError:
        batch = self._read(self._paths.batch(opened.plan_id))
        if batch is None or batch.version != OPEN_VERSION:
            return _closed(opened.plan_id)
        return ConflictError(
            f"the report of plan {opened.plan_id} was opened by another process, or removed, since "
            "this batch began; no record of this batch is acked, and all are redelivered"
        )


def _openings(data: bytes, path: str) -> int:
    """The openings that have not answered; none are known of a damaged report. Opening it again
    repairs it.
    """
    try:
        return decode_header(data, path).openings
    except StoredDataError:
        return 0


def _contended(path: str) -> ConflictError:
    return ConflictError(
        f"{path} is written to by several processes",
        ("let only one query with tracked(...) use the application"),
    )


def _closed(plan_id: str) -> PlanClosedError:
    return PlanClosedError(
        f"plan {plan_id} is closed or removed, so its batch can no longer report; its records are "
        "delivered again"
    )
