"""Encodes reports of tracked batches and the policy of an application that tracks its records, and
decodes them.

A report that fits is one value. A larger report is a header and several parts, each a value of its
own. The header has the number of the parts and a digest over them.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from state.codec.unresolved import StoredRecord, from_rows, shared_reasons, to_rows
from state.codec.values import MAX_VALUE_BYTES, decode, encode, encode_unchecked
from state.errors import StoredDataError
from state.report import (
    REPORT_FORMAT,
    OnFailure,
    OutcomePolicy,
    PlanReport,
    ReportStatus,
    ShardOutcome,
)
from state.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from state.report import OpenReport
    from state.shard_state import UnresolvedRecord

_HEADER_BYTES = 4 * 1024
# A report with one part is stored within the header, so the two must fit together.
_MAX_PART_BYTES = MAX_VALUE_BYTES - _HEADER_BYTES


class StoredOutcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A shard's outcome, with its records as rows."""

    shard_id: str
    unresolved: tuple[StoredRecord, ...] = ()


class ReportPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Outcomes of shards, in order, with what is stored beside their records' rows. The outcome of
    a shard may continue in the next part.
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
    """The policy that `encode_policy` wrote; raises `StoredDataError`, also for values that no
    policy may have.
    """
    stored = decode(data, _StoredPolicy, path, newest_format=REPORT_FORMAT)
    try:
        retry = RetryPolicy(
            **{each.name: getattr(stored, each.name) for each in fields(RetryPolicy)}
        )
    except ValueError as exc:
        raise StoredDataError(
            f"{path} does not contain a valid retry policy ({exc})",
            "remove it, and the application writes it again",
        ) from exc
    return OutcomePolicy(retry=retry, on_failure=stored.on_failure, format=stored.format)


def encode_open_report(token: str, openings: int, path: str) -> bytes:
    """The bytes of a report whose batch has begun. `openings` have not answered."""
    return encode(ReportHeader(token=token, status=ReportStatus.OPEN, openings=openings), path)


def encode_report(opened: OpenReport, report: PlanReport, path: str) -> tuple[bytes, list[bytes]]:
    """The bytes of a done report's header, and of its parts. There are no parts if the report fits
    into the header.
    """
    header = ReportHeader(
        token=opened.token,
        status=ReportStatus.DONE,
        report=replace(report, shards=()),
        opened_version=opened.version,
        openings=opened.openings,
        format=report.format,
    )
    parts = list(_parts(report.shards))
    if len(parts) <= 1:
        return encode(replace(header, outcomes=parts[0] if parts else None), path), []
    encoded = [encode(part, path) for part in parts]
    return encode(replace(header, parts=len(parts), digest=_digest(encoded)), path), encoded


def decode_header(data: bytes, path: str) -> ReportHeader:
    """The header that `encode_open_report` or `encode_report` wrote; raises `StoredDataError`."""
    return decode(data, ReportHeader, path, newest_format=REPORT_FORMAT)


def decode_report(header: ReportHeader, parts: Sequence[bytes | None], path: str) -> PlanReport:
    """The done report of this header and these parts. Raises `StoredDataError` if a part is missing
    (None) or was changed.
    """
    if header.report is None:
        raise _damaged(path, "is done but contains no report")
    present = [part for part in parts if part is not None]
    if len(present) < header.parts:
        raise _damaged(
            path, f"has {header.parts} parts, of which {header.parts - len(present)} are missing"
        )
    if header.parts and _digest(present) != header.digest:
        raise _damaged(path, "has parts that were changed since they were written")
    outcomes = (
        [header.outcomes]
        if header.outcomes
        else [decode(part, ReportPart, path) for part in present]
    )
    return replace(header.report, shards=_joined(outcomes, path))


def _parts(shards: Sequence[ShardOutcome]) -> Iterator[ReportPart]:
    """The outcomes in order, in parts that are halved until each fits into a value."""
    if not shards:
        return
    part = _part(shards)
    if len(encode_unchecked(part)) <= _MAX_PART_BYTES:
        yield part
        return
    for half in _halves(shards):
        yield from _parts(half)


def _halves(shards: Sequence[ShardOutcome]) -> list[list[ShardOutcome]]:
    if len(shards) > 1:
        middle = len(shards) // 2
        return [list(shards[:middle]), list(shards[middle:])]
    unresolved = shards[0].unresolved
    if len(unresolved) > 1:
        middle = len(unresolved) // 2
        return [
            [replace(shards[0], unresolved=unresolved[:middle])],
            [replace(shards[0], unresolved=unresolved[middle:])],
        ]
    # A single record that does not fit: only its reason can be that long, and only people read it.
    return [
        [
            replace(
                shards[0], unresolved=tuple(replace(record, reason=None) for record in unresolved)
            )
        ]
    ]


def _part(shards: Sequence[ShardOutcome]) -> ReportPart:
    reasons = shared_reasons(record for outcome in shards for record in outcome.unresolved)
    return ReportPart(
        shards=tuple(
            StoredOutcome(
                shard_id=outcome.shard_id, unresolved=to_rows(outcome.unresolved, reasons)
            )
            for outcome in shards
        ),
        reasons=reasons,
        user_records=True,
    )


def _joined(parts: Sequence[ReportPart], path: str) -> tuple[ShardOutcome, ...]:
    joined: dict[str, list[UnresolvedRecord]] = {}
    for part in parts:
        for stored in part.shards:
            joined.setdefault(stored.shard_id, []).extend(
                from_rows(stored.unresolved, part.reasons, path, user_records=part.user_records)
            )
    return tuple(
        ShardOutcome(shard_id=shard_id, unresolved=tuple(records))
        for shard_id, records in joined.items()
    )


def _digest(parts: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def _damaged(path: str, what: str) -> StoredDataError:
    return StoredDataError(
        f"{path} {what}", "restore it, or remove it to have the plan's records delivered again"
    )
