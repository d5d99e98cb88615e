"""The report of a plan, and the policy of an application that tracks its records, as znodes.

A report is fenced by its plan, as results are: each of its writes checks that `batches/<planId>` is
in the version of an open plan. Opening a report creates or sets its node. Finishing it sets the
node again, based on the version that the opener made, so only the last opener can finish.

A larger report than fits is a header and several parts, each a value of its own, written before it.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs
from msgspec.structs import replace

from state.codec.shard_states import StoredRecord, from_rows, shared_reasons, to_rows
from state.codec.values import MAX_VALUE_BYTES, decode, encode, encode_unchecked
from state.errors import ConflictError, PlanClosedError, StoredDataError
from state.failpoint import failpoint
from state.report import (
    REPORT_FORMAT,
    OnFailure,
    OpenReport,
    OutcomePolicy,
    PlanReport,
    ReportStatus,
)
from state.retry_policy import RetryPolicy
from state.store.reports import ReportStore
from state.znodes.fence import Nodes
from state.znodes.paths import valid_name
from state.znodes.plans import OPEN_VERSION
from state.znodes.tree import (
    Check,
    Delete,
    Set,
    TransactionRefusedError,
    commit_once,
    ensure,
    put,
    stands,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from state.shard_state import UnresolvedRecord

    Outcome = tuple[str, Sequence[UnresolvedRecord]]

_HEADER_BYTES = 4 * 1024
# A report with one part is stored within the header, so the two must fit together.
_MAX_PART_BYTES = MAX_VALUE_BYTES - _HEADER_BYTES
_MAX_ROUNDS = 8  # each needs another process to write between the read and the write here


class StoredOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A shard with its unresolved records as rows."""

    shard_id: str
    unresolved: tuple[StoredRecord, ...] = ()


class ReportPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Outcomes of shards, in order, with what is stored beside their records' rows. That of a shard
    may continue in the next part.
    """

    shards: tuple[StoredOutcome, ...]
    reasons: tuple[str, ...] = ()
    user_records: bool = False


class ReportHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of `batches/<planId>/report`.

    `report` is without the shards' outcomes. They are in `outcomes`; or in `parts` nodes, whose
    names have `token` and `opened_version`, and whose SHA-256 is `digest`. `openings` counts
    those that have not answered, the current one included while it runs.
    """

    token: str
    status: ReportStatus
    report: PlanReport | None = None
    outcomes: ReportPart | None = None
    opened_version: int = 0
    openings: int = 0
    parts: int = 0
    digest: str | None = None
    format: int = REPORT_FORMAT


class _StoredPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An `OutcomePolicy` without nesting: the fields of its `RetryPolicy`, and its own."""

    retry_limit: int
    first_delay_ms: int
    growth: float
    max_delay_ms: int
    jitter: float
    max_age_ms: int | None = None
    on_failure: OnFailure
    format: int = REPORT_FORMAT


def encode_policy(policy: OutcomePolicy, path: str) -> bytes:
    """The bytes of an application's policy."""
    stored = _StoredPolicy(
        **asdict(policy.retry), on_failure=policy.on_failure, format=policy.format
    )
    return encode(stored, path)


def decode_policy(data: bytes, path: str) -> OutcomePolicy:
    """What `encode_policy` wrote; raises `StoredDataError`, also for values of no valid policy."""
    fields = structs.asdict(decode(data, _StoredPolicy, path, newest_format=REPORT_FORMAT))
    on_failure, format_ = fields.pop("on_failure"), fields.pop("format")
    try:
        retry = RetryPolicy(**fields)
    except ValueError as exc:
        raise StoredDataError(
            f"znode {path} does not contain a valid retry policy ({exc})",
            "remove the znode; the application writes the znode again",
        ) from exc
    return OutcomePolicy(retry=retry, on_failure=on_failure, format=format_)


def encode_report(opened: OpenReport, report: PlanReport, path: str) -> tuple[bytes, list[bytes]]:
    """The bytes of a done report's header, and of its parts: none if it fits into the header."""
    header = ReportHeader(
        token=opened.token,
        status=ReportStatus.DONE,
        report=replace(report, unresolved={}),
        opened_version=opened.version,
        openings=opened.openings,
        format=report.format,
    )
    parts = list(_parts(list(report.unresolved.items())))
    if len(parts) <= 1:
        return encode(replace(header, outcomes=parts[0] if parts else None), path), []
    encoded = [encode(part, path) for part in parts]
    return encode(replace(header, parts=len(parts), digest=_digest(encoded)), path), encoded


def decode_header(data: bytes, path: str) -> ReportHeader:
    """The header of a report; raises `StoredDataError`."""
    return decode(data, ReportHeader, path, newest_format=REPORT_FORMAT)


def decode_report(header: ReportHeader, parts: Sequence[bytes | None], path: str) -> PlanReport:
    """The done report of this header and these parts. Raises `StoredDataError` if a part is missing
    (None) or was changed.
    """
    if header.report is None:
        raise _damaged(f"{path} is marked as done but contains no report")
    present = [part for part in parts if part is not None]
    missing = header.parts - len(present)
    if missing > 0:
        raise _damaged(f"{path} has {header.parts} parts, of which {missing} are missing")
    if header.parts and _digest(present) != header.digest:
        raise _damaged(f"{path} has parts that were changed since they were written")
    outcomes = [decode(part, ReportPart, path) for part in present]
    records: dict[str, tuple[UnresolvedRecord, ...]] = {}
    for part in [header.outcomes] if header.outcomes else outcomes:
        for shard in part.shards:
            more = from_rows(shard.unresolved, part.reasons, path, user_records=part.user_records)
            records[shard.shard_id] = (*records.get(shard.shard_id, ()), *more)
    return replace(header.report, unresolved=records)


def _parts(shards: Sequence[Outcome]) -> Iterator[ReportPart]:
    """The outcomes in order, in parts that are halved until each fits into a value."""
    if not shards:
        return
    reasons = shared_reasons(record for _, records in shards for record in records)
    stored = tuple(
        StoredOutcome(shard_id=shard_id, unresolved=to_rows(records, reasons))
        for shard_id, records in shards
    )
    part = ReportPart(shards=stored, reasons=reasons, user_records=True)
    if len(encode_unchecked(part)) <= _MAX_PART_BYTES:
        yield part
        return
    shard_id, records = shards[0]
    halves: list[Sequence[Outcome]]
    if len(shards) > 1:
        middle = len(shards) // 2
        halves = [shards[:middle], shards[middle:]]
    elif len(records) > 1:
        middle = len(records) // 2
        halves = [[(shard_id, records[:middle])], [(shard_id, records[middle:])]]
    else:
        # A single record: only its reason can be that long, and only people read it.
        halves = [[(shard_id, [replace(records[0], reason=None)])]]
    for half in halves:
        yield from _parts(half)


def _digest(parts: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def _damaged(what: str) -> StoredDataError:
    return StoredDataError(
        what,
        "restore the znode from a backup, or remove the znode, so that its records are redelivered",
    )


class ReportZnodes(Nodes, ReportStore):
    """A `ReportStore`."""

    def read_policy(self) -> OutcomePolicy | None:
        return self._value(self._paths.tracked, decode_policy)

    def mark_tracked(self, policy: OutcomePolicy) -> None:
        path = self._paths.tracked
        data = encode_policy(policy, path)
        for _ in range(_MAX_ROUNDS):
            node = self._read(path)
            if node is not None and node.data == data:
                return
            if node is None:
                ensure(self._tree, self._paths.base)
            with suppress(TransactionRefusedError):  # another process has just written it
                commit_once(self._tree, [put(path, data, node)])
                return
        raise _contended(path)

    def clear_policy(self) -> None:
        node = self._read(self._paths.tracked)
        with suppress(TransactionRefusedError):  # another process has just removed it
            self._fence.commit([] if node is None else [Delete(self._paths.tracked)])

    def open(self, plan_id: str, token: str) -> OpenReport:
        path = self._paths.report(plan_id)
        valid_name("report token", token)
        for _ in range(_MAX_ROUNDS):
            node = self._read(path)
            openings = 0
            if node is not None:
                with suppress(StoredDataError):  # opening a damaged report repairs it
                    openings = decode_header(node.data, path).openings
            header = ReportHeader(token=token, status=ReportStatus.OPEN, openings=openings + 1)
            write = put(path, encode(header, path), node)
            version = stands(write).version
            opened = OpenReport(plan_id=plan_id, token=token, version=version, openings=openings)
            try:
                commit_once(self._tree, [self._plan_is_open(plan_id), write])
            except TransactionRefusedError as refused:
                if refused.index == 0:
                    raise _closed(plan_id) from refused
                continue  # another process has just opened it
            return opened
        raise _contended(path)

    def answer(self, opened: OpenReport) -> None:
        path = self._paths.report(opened.plan_id)
        header = ReportHeader(
            token=opened.token, status=ReportStatus.OPEN, openings=opened.openings
        )
        write = Set(path, encode(header, path), opened.version)
        # Where the plan is closed, or the report opened again, nobody asks for this answer.
        with suppress(TransactionRefusedError):
            self._tree.commit([self._plan_is_open(opened.plan_id), write])

    def finish(self, opened: OpenReport, report: PlanReport) -> None:
        path = self._paths.report(opened.plan_id)
        status = self._status(opened)
        if status is ReportStatus.DONE:
            return  # an earlier call's answer was lost
        if status is None:
            raise self._overtaken(opened)
        header, parts = encode_report(opened, report, path)
        plan_is_open = self._plan_is_open(opened.plan_id)
        # One that was overtaken writes no part either.
        guards = [plan_is_open, Check(path, opened.version)]
        try:
            for number, data in enumerate(parts):
                name = (opened.plan_id, opened.token, opened.version, number)
                part = self._paths.report_part(*name)
                # An earlier call may have written it. No other process does.
                commit_once(self._tree, [*guards, put(part, data, self._read(part))])
                failpoint("report-part-written")
            commit_once(self._tree, [plan_is_open, Set(path, header, opened.version)])
        except TransactionRefusedError as refused:
            raise self._overtaken(opened) from refused
        failpoint("report-done")

    def read(self, plan_id: str) -> PlanReport | None:
        header = self.header(plan_id)
        if header is None or header.status is ReportStatus.OPEN:
            return None
        # One request for each part: an answer with all of them might exceed ZooKeeper's limit.
        parts = [
            self._read(self._paths.report_part(plan_id, header.token, header.opened_version, part))
            for part in range(header.parts)
        ]
        data = [None if part is None else part.data for part in parts]
        return decode_report(header, data, self._paths.report(plan_id))

    def header(self, plan_id: str) -> ReportHeader | None:
        return self._value(self._paths.report(plan_id), decode_header)

    def _plan_is_open(self, plan_id: str) -> Check:
        return Check(self._paths.batch(plan_id), OPEN_VERSION)

    def _status(self, opened: OpenReport) -> ReportStatus | None:
        """The status of the opener's report; None where another process has written it since."""
        path = self._paths.report(opened.plan_id)
        node = self._read(path)
        if node is None:
            return None
        header = decode_header(node.data, path)
        version = opened.version + (header.status is ReportStatus.DONE)
        is_own = (header.token, node.version) == (opened.token, version)
        return header.status if is_own else None

    def _overtaken(self, opened: OpenReport) -> PlanClosedError | ConflictError:
        batch = self._read(self._paths.batch(opened.plan_id))
        if batch is None or batch.version != OPEN_VERSION:
            return _closed(opened.plan_id)
        return ConflictError(
            f"another process opened or removed the report of batch {opened.plan_id} while this "
            "process was running the batch; no record of the batch is acked, and all its records "
            "are redelivered"
        )


def _contended(path: str) -> ConflictError:
    return ConflictError(
        f"several processes write to znode {path}",
        "run only one query with tracked(...) for the application",
    )


def _closed(plan_id: str) -> PlanClosedError:
    return PlanClosedError(
        f"batch {plan_id} is closed or removed, so its outcomes can no longer be reported; the "
        "batch's records are redelivered"
    )
