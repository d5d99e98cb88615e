"""The figures of all Kinesis queries of a session, from their reports. Pure but for its memory; for
any thread.

A run reports its totals from its own start. The ledger adds up what each report has gained on the
one before it, so a counter goes on where a query is started again, and never back. Figures of an
application and stream are shown while a run of it is active. Its failures and data losses are shown
as long as the ledger lives: nobody could alert on what vanishes with the query.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kinesis_spout.reading.fallback import Fallback

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_job.metrics.source_report import SourceProgress, SourceReport

_Name = TypeVar("_Name", str, tuple[str, str])
Key = tuple[str, str]
"""The application and the stream."""
LASTING = ("data_losses", "query_failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of a metric. `labels`: application, stream, and its own: a shard, or a reason."""

    name: str
    labels: tuple[str, ...]
    value: float


@dataclass(slots=True)
class _Stream:
    """One application on one stream. `run`: the active one; None without. `seen`: the totals of
    the last report of `run`, which was of `batch_id`. Times are monotonic seconds.
    """

    run: str | None = None
    batch_id: int = 0
    report: SourceReport | None = None
    reported_s: float = 0.0
    batch_s: float | None = None
    totals: Counter[str] = field(default_factory=Counter)
    seen: dict[str, int] = field(default_factory=dict)
    by_shard: Counter[tuple[str, str]] = field(default_factory=Counter)
    seen_by_shard: dict[tuple[str, str], int] = field(default_factory=dict)
    fallbacks: Counter[str] = field(default_factory=Counter)
    seen_fallbacks: dict[str, int] = field(default_factory=dict)


class QueryLedger:
    """`max_shards`: with more shards in a report, there are no series of single shards."""

    def __init__(self, max_shards: int) -> None:
        self._max_shards = max_shards
        self._lock = threading.Lock()
        self._streams: dict[Key, _Stream] = {}

    def on_progress(
        self, run: str, sources: Iterable[SourceProgress], now_s: float, *, is_batch: bool
    ) -> None:
        """Take in a progress report of a run. `is_batch`: a batch has ended with it."""
        with self._lock:
            for one in sources:
                self._add(run, one, now_s, is_batch=is_batch)

    def on_end(self, run: str, *, failed: bool, lost_data: bool) -> None:
        """Note that a run has ended. A run that another one has followed is no longer shown."""
        with self._lock:
            for stream in self._streams.values():
                if stream.run == run:
                    stream.run = stream.report = None
                    stream.batch_s = None
                    stream.seen, stream.seen_by_shard, stream.seen_fallbacks = {}, {}, {}
                    stream.totals["query_failures"] += failed
                    stream.totals["data_losses"] += lost_data

    def samples(self, now_s: float) -> list[Sample]:
        """All values now."""
        with self._lock:
            found: list[Sample] = []
            for key, stream in sorted(self._streams.items()):
                found += [
                    Sample(name=name, labels=key, value=stream.totals[name]) for name in LASTING
                ]
                if stream.report is not None:
                    found += self._of_stream(key, stream, stream.report, now_s)
            return found

    # private --------------------------------------------------------------------------------------
    def _add(self, run: str, one: SourceProgress, now_s: float, *, is_batch: bool) -> None:
        report = one.report
        stream = self._streams.setdefault((report.application, report.stream), _Stream())
        if stream.run != run:
            stream.run, stream.seen, stream.seen_by_shard = run, {}, {}
            stream.seen_fallbacks = {}
            stream.batch_id = one.batch_id
        if is_batch and one.had_plan:
            stream.totals["batches"] += 1
            stream.batch_s = now_s
        if one.batch_id < stream.batch_id:
            return  # an idle event was answered with a newer report than this one
        stream.batch_id = one.batch_id
        stream.report, stream.reported_s = report, now_s - one.age_s
        _gain(stream.totals, stream.seen, report.totals)
        _gain(stream.fallbacks, stream.seen_fallbacks, report.fallbacks or {})
        by_shard = {
            (shard_id, name): value
            for shard_id, shard in report.shards.items()
            for name, value in (
                ("records_emitted", shard.emitted),
                ("records_retried", shard.retried),
            )
        }
        _gain(stream.by_shard, stream.seen_by_shard, by_shard)
        for gone in stream.by_shard.keys() - by_shard.keys():
            del stream.by_shard[gone]

    def _of_stream(
        self, key: Key, stream: _Stream, report: SourceReport, now_s: float
    ) -> list[Sample]:
        age_s = max(0.0, now_s - stream.reported_s)
        values = {name: float(stream.totals[name]) for name in ("batches", *report.totals)}
        del values["data_losses"]  # it lasts
        values |= {
            "stream_queued_records": report.unresolved,
            "stream_oldest_unresolved_seconds": _older_s(report.oldest_unresolved_ms, age_s),
            "reading_held": report.outage,
            "readable_shards": report.readable_shards,
            "report_age_seconds": age_s,
            **_lag("stream_", report.lag_ms, age_s, report.retention_ms),
        }
        if stream.batch_s is not None:
            values["last_batch_age_seconds"] = max(0.0, now_s - stream.batch_s)
        found = [Sample(name=name, labels=key, value=value) for name, value in values.items()]
        if report.fallbacks is not None:
            # All reasons from the beginning: an increase from nothing to one is not seen else.
            found += [
                Sample(
                    name="subscription_fallbacks",
                    labels=(*key, reason),
                    value=stream.fallbacks[reason],
                )
                for reason in sorted({*Fallback, *stream.fallbacks})
            ]
        if len(report.shards) > self._max_shards:
            return found
        for shard_id, shard in report.shards.items():
            one = {
                "records_emitted": stream.by_shard[shard_id, "records_emitted"],
                "records_retried": stream.by_shard[shard_id, "records_retried"],
                "queued_records": shard.unresolved,
                **_lag("", shard.lag_ms, age_s, report.retention_ms),
            }
            labels = (*key, shard_id)
            found += [Sample(name=name, labels=labels, value=one[name]) for name in one]
        return found


def _gain(totals: Counter[_Name], seen: dict[_Name, int], now: Mapping[_Name, int]) -> None:
    """Add what the run's totals have gained since they were seen last."""
    for name, value in now.items():
        totals[name] += max(0, value - seen.get(name, 0))
        seen[name] = value


def _lag(scope: str, lag_ms: int, age_s: float, retention_ms: int | None) -> dict[str, float]:
    """The lag as an upper bound: since the report the reader may have stood still."""
    lag_s = lag_ms / 1000 + age_s
    found = {f"{scope}lag_seconds": lag_s}
    if retention_ms is not None:
        found[f"{scope}retention_left_seconds"] = max(0.0, retention_ms / 1000 - lag_s)
    return found


def _older_s(oldest_ms: int, age_s: float) -> float:
    return oldest_ms / 1000 + age_s if oldest_ms else 0.0
