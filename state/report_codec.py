"""Reports of tracked batches, and the mark of an application that tracks its records, to bytes and back.

A report that fits is one value. A larger one is a header, which says how many parts there are and what they add up to,
and the parts, each a value of its own.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from state.codec import MAX_VALUE_BYTES, decode, encode, encode_unchecked
from state.errors import StoredDataError
from state.report import REPORT_FORMAT, OnFailure, OutcomePolicy, PlanReport, ReportStatus, ShardOutcome
from state.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from state.report import OpenReport

_HEADER_BYTES = 4 * 1024
_MAX_SHARDS_BYTES = MAX_VALUE_BYTES - _HEADER_BYTES  # so that what is in one part fits beside a header too


class ReportHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What `batches/<planId>/report` holds.

    Of a done one in `parts`, the shards' outcomes are not in `report` but in parts named by `token` and `opened_version`.
    """

    token: str
    status: ReportStatus
    report: PlanReport | None = None
    opened_version: int = 0
    parts: int = 0
    digest: str | None = None
    format: int = REPORT_FORMAT


class ReportPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a report: outcomes of shards, in order. One shard's may go on in the next part."""

    shards: tuple[ShardOutcome, ...]


class _StoredPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    retry_limit: int
    first_delay_ms: int
    growth: float
    max_delay_ms: int
    jitter: float
    max_age_ms: int | None = None
    on_failure: OnFailure
    format: int = REPORT_FORMAT


def encode_policy(policy: OutcomePolicy, path: str) -> bytes:
    """The bytes of the mark."""
    retry = policy.retry
    return encode(
        _StoredPolicy(
            retry_limit=retry.retry_limit,
            first_delay_ms=retry.first_delay_ms,
            growth=retry.growth,
            max_delay_ms=retry.max_delay_ms,
            jitter=retry.jitter,
            max_age_ms=retry.max_age_ms,
            on_failure=policy.on_failure,
            format=policy.format,
        ),
        path,
    )


def decode_policy(data: bytes, path: str) -> OutcomePolicy:
    """The policy of the mark; raises `StoredDataError`, also for numbers that no policy has."""
    stored = decode(data, _StoredPolicy, path, newest_format=REPORT_FORMAT)
    try:
        retry = RetryPolicy(
            retry_limit=stored.retry_limit,
            first_delay_ms=stored.first_delay_ms,
            growth=stored.growth,
            max_delay_ms=stored.max_delay_ms,
            jitter=stored.jitter,
            max_age_ms=stored.max_age_ms,
        )
    except ValueError as exc:
        raise StoredDataError(f"{path} holds no policy: {exc}; remove it, and the application is marked anew") from exc
    return OutcomePolicy(retry=retry, on_failure=stored.on_failure, format=stored.format)


def encode_open_report(token: str, path: str) -> bytes:
    """The bytes of a report that has begun."""
    return encode(ReportHeader(token=token, status=ReportStatus.OPEN), path)


def encode_report(opened: OpenReport, report: PlanReport, path: str) -> tuple[bytes, list[bytes]]:
    """The bytes of a done report's header and of its parts: none when it fits into the header."""
    parts = [encode(part, path) for part in _parts(report.shards)]
    header = ReportHeader(
        token=opened.token, status=ReportStatus.DONE, report=report, opened_version=opened.version, format=report.format
    )
    if len(parts) > 1:
        header = replace(header, report=replace(report, shards=()), parts=len(parts), digest=_digest(parts))
        return encode(header, path), parts
    if parts:
        header = replace(header, report=replace(report, shards=next(_parts(report.shards)).shards))
    return encode(header, path), []


def decode_header(data: bytes, path: str) -> ReportHeader:
    """What `encode_open_report` and `encode_report` wrote; raises `StoredDataError`."""
    header = decode(data, ReportHeader, path, newest_format=REPORT_FORMAT)
    if header.status is ReportStatus.DONE and (header.report is None or header.parts < 0):
        raise _damaged(path, "is done but holds no outcomes")
    return header


def decode_report(header: ReportHeader, parts: Sequence[bytes | None], path: str) -> PlanReport:
    """A done report of this header and these parts (None: the part is not there); raises `StoredDataError`."""
    if header.report is None:
        raise _damaged(path, "holds no outcomes")
    if not header.parts:
        return header.report
    present = [part for part in parts if part is not None]
    if len(present) < header.parts:
        raise _damaged(path, f"has {header.parts} parts, of which {header.parts - len(present)} are missing")
    if _digest(present) != header.digest:
        raise _damaged(path, "has parts that were changed since they were written")
    return replace(header.report, shards=_joined([decode(part, ReportPart, path).shards for part in present]))


def _parts(shards: Sequence[ShardOutcome]) -> Iterator[ReportPart]:
    """The outcomes in order, in parts that each fit into a value: halved until they do."""
    if not shards:
        return
    if _fits(shards):
        yield ReportPart(shards=tuple(shards))
    elif len(shards) > 1:
        yield from _parts(shards[: len(shards) // 2])
        yield from _parts(shards[len(shards) // 2 :])
    else:
        yield from _parts_of_one(shards[0])


def _parts_of_one(outcome: ShardOutcome) -> Iterator[ReportPart]:
    unresolved = outcome.unresolved
    if len(unresolved) > 1:
        middle = len(unresolved) // 2
        yield from _parts([replace(outcome, unresolved=unresolved[:middle])])
        yield from _parts([replace(outcome, unresolved=unresolved[middle:])])
    else:  # a reason that fits into no value is for nobody to read
        yield ReportPart(shards=(replace(outcome, unresolved=tuple(replace(record, reason=None) for record in unresolved)),))


def _fits(shards: Sequence[ShardOutcome]) -> bool:
    return len(encode_unchecked(ReportPart(shards=tuple(shards)))) <= _MAX_SHARDS_BYTES


def _joined(parts: Sequence[Sequence[ShardOutcome]]) -> tuple[ShardOutcome, ...]:
    joined: list[ShardOutcome] = []
    for outcome in (outcome for part in parts for outcome in part):
        if joined and joined[-1].shard_id == outcome.shard_id:
            joined[-1] = replace(outcome, unresolved=(*joined[-1].unresolved, *outcome.unresolved))
        else:
            joined.append(outcome)
    return tuple(joined)


def _digest(parts: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def _damaged(path: str, what: str) -> StoredDataError:
    return StoredDataError(f"{path} {what}; restore it, or remove it to have the plan's records delivered again")
