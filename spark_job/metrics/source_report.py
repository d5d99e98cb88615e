"""What the source reports of itself in Spark's progress (`spark_job.driver.coordinator`). Pure.

Spark passes it on as the latest offset of the source. Other sources have offsets of their own
there, which may be anything.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_COUNTS = ("emitted", "retried", "acked", "failed", "dead_lettered", "dropped")


class ShardReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One shard that is not over. Totals are of the run."""

    lag_ms: int
    emitted: int
    retried: int
    unresolved: int


class SourceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One report. Totals are of the run. `retention_ms`: None before the stream was described.

    `pushed_records`, `polled_records`, and `fallbacks` by why: None for a query that only polls.
    """

    format: int
    application: str
    stream: str
    lag_ms: int
    retention_ms: int | None
    readable_shards: int
    data_losses: int
    emitted: int
    retried: int
    acked: int
    failed: int
    dead_lettered: int
    dropped: int
    unresolved: int
    oldest_unresolved_ms: int
    outage: bool
    shards: dict[str, ShardReport]
    pushed_records: int | None = None
    polled_records: int | None = None
    fallbacks: dict[str, int] | None = None

    @property
    def totals(self) -> dict[str, int]:
        """Those that only grow, by the name of their metric."""
        counts: dict[str, int | None] = {name: getattr(self, name) for name in _COUNTS}
        counts |= {"pushed": self.pushed_records, "polled": self.polled_records}
        known = {f"stream_records_{name}": n for name, n in counts.items() if n is not None}
        return {**known, "data_losses": self.data_losses}


class SourceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A report, and whether the batch of this progress had a plan of the source. `age_s`: how long
    before the end of the trigger the driver gave the report. `batch_id` never falls in a run.
    """

    report: SourceReport
    batch_id: int
    had_plan: bool
    age_s: float


def reports_in(progress: Mapping[str, Any]) -> Iterator[SourceProgress]:
    """The reports of our sources in one of Spark's progress reports, as its JSON has it: one of
    each stream. Skips what is not ours, or is of a version that does not say enough.
    """
    durations = progress.get("durationMs") or {}
    age_ms = int(durations.get("triggerExecution", 0)) - int(durations.get("latestOffset", 0))
    for source in progress.get("sources") or ():
        offset = _decoded(source.get("latestOffset"))
        streams = offset.get("streams") if isinstance(offset, dict) else None
        for each in streams if isinstance(streams, list) else [offset]:
            with suppress(msgspec.ValidationError):
                report = msgspec.convert(each, SourceReport)
                yield SourceProgress(
                    report=report,
                    batch_id=int(progress.get("batchId", 0)),
                    had_plan=_plan(source.get("startOffset"), report)
                    != _plan(source.get("endOffset"), report),
                    age_s=max(0, age_ms) / 1000,
                )


def _plan(offset: object, report: SourceReport) -> object:
    """The plan of the report's stream in an offset (`driver.query_driver`); else all of it."""
    decoded = _decoded(offset)
    plans = decoded.get("plans") if isinstance(decoded, dict) else None
    if not isinstance(plans, dict):
        return decoded
    name = report.stream.rpartition("/")[2]  # an ARN ends with it
    return plans.get(f"{report.application}/{name}")


def _decoded(offset: object) -> object:
    """Spark gives an offset as JSON in a text, or as what that means."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None
