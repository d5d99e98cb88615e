"""`serve`: a listener on the queries of a session, and an HTTP server for scrapes.

Spark calls the listener in a thread of its own. It waits for no network and no lock that is held
for long. An error in it would end up in Spark's log at each batch, so it is logged once here and
the query continues.

Spark tells an idle query's figures to nobody: the event names the query, whose last progress the
listener asks for then.
"""

from __future__ import annotations

import json
import logging
import threading
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.errors import ConfigError
from kinesis_spout.prometheus_exporter import (
    DEFINITIONS,
    LOOPBACK,
    PREFIX,
    SPARK,
    CollectorServer,
    family,
)
from spark_job.metrics.source_report import reports_in
from spark_job.query_failure import failure_sentence
from state.plan import Fallback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.metrics_core import Metric
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from spark_job.metrics.source_report import SourceProgress, SourceReport


log = logging.getLogger("kinesis_spout")
MAX_SHARDS = 100
LOSS = "DataLossError"
Key = tuple[str, str]
"""The application and the stream."""
MetricSample = tuple[str, tuple[str, ...], float]
"""A metric, its labels (application, stream, and its own: a shard, or a reason), and a value."""
LASTING = ("data_losses", "query_failures")
OF_SHARDS = ("records_emitted", "records_retried")
FALLBACKS = "subscription_fallbacks"


@dataclass(slots=True)
class _Stream:
    """One application on one stream. `run`: the active one; None without. Its last `report` was of
    `batch_id`. Times are monotonic seconds.

    `sums`: totals over all runs, by the name of a metric and its own label, where it has one.
    `of_run`: those that the run has reported.
    """

    run: str | None = None
    batch_id: int = 0
    report: SourceReport | None = None
    reported_s: float = 0.0
    batch_s: float | None = None
    sums: Counter[tuple[str, ...]] = field(default_factory=Counter)
    of_run: dict[tuple[str, ...], int] = field(default_factory=dict)

    def take(self, report: SourceReport) -> None:
        """Add what the run's totals have gained on its last report."""
        reported: dict[tuple[str, ...], int] = {
            (name,): total for name, total in report.totals.items()
        }
        for reason, count in (report.fallbacks or {}).items():
            reported[FALLBACKS, reason] = count
        for shard_id, shard in report.shards.items():
            reported["records_emitted", shard_id] = shard.emitted
            reported["records_retried", shard_id] = shard.retried
        for name, total in reported.items():
            self.sums[name] += max(0, total - self.of_run.get(name, 0))
            self.of_run[name] = total
        for name in [*self.sums]:
            if name[0] in OF_SHARDS and name not in reported:  # the shard is over
                del self.sums[name]


class QueryLedger(StreamingQueryListener):
    """The figures of all Kinesis queries of a session, from what Spark tells its listeners. For any
    thread. `last_progress`: of a query, by its id. `max_shards`: with more shards in a report,
    there are no series of single shards.

    A run reports its totals from its own start. The ledger adds up what each report has gained on
    the one before it, so a counter continues where a query is started again, and never falls.
    Figures of an application and stream are shown while a run of it is active. Its failures and
    data losses are shown as long as the ledger lives: nobody could alert on what vanishes with the
    query.
    """

    def __init__(self, max_shards: int, clock: Clock, last_progress: Callable[[str], Any]) -> None:
        self._max_shards = max_shards
        self._clock = clock
        self._last_progress = last_progress
        self._lock = threading.Lock()
        self._streams: dict[Key, _Stream] = {}
        self._has_logged = False

    # Spark's events
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known of the query before its first report."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._safely(lambda: self._read(event.progress, is_batch=True))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._safely(lambda: self._read(self._last_progress(str(event.id)), is_batch=False))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        error = event.exception
        self._safely(
            lambda: self.run_ended(
                str(event.runId), failed=error is not None, lost_data=LOSS in (error or "")
            )
        )

    def _safely(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            if not self._has_logged:
                self._has_logged = True
                log.exception(
                    "a progress report is missing from the metrics of Spark's queries. The queries "
                    "continue. Later errors of this kind are not logged"
                )

    def _read(self, progress: Any, *, is_batch: bool) -> None:
        if progress is not None:  # the query has ended meanwhile, or has not begun
            self.add(str(progress.runId), reports_in(json.loads(progress.json)), is_batch=is_batch)

    # the figures
    def add(self, run: str, sources: Iterable[SourceProgress], *, is_batch: bool) -> None:
        """Take in a progress report of a run. `is_batch`: a batch has ended with it."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            for source in sources:
                report = source.report
                stream = self._streams.setdefault((report.application, report.stream), _Stream())
                if stream.run != run:
                    stream.run, stream.batch_id, stream.of_run = run, source.batch_id, {}
                # Counted before an older report is left out: no later one has this batch again.
                if is_batch and source.had_plan:
                    stream.sums["batches",] += 1
                    stream.batch_s = now_s
                if source.batch_id < stream.batch_id:
                    continue  # an idle event was answered with a newer report than this one
                stream.batch_id = source.batch_id
                stream.report, stream.reported_s = report, now_s - source.age_s
                stream.take(report)

    def run_ended(self, run: str, *, failed: bool, lost_data: bool) -> None:
        """Note that a run has ended. A run that another one has followed is no longer shown."""
        with self._lock:
            for stream in self._streams.values():
                if stream.run == run:
                    stream.run = stream.report = stream.batch_s = None
                    stream.sums["query_failures",] += failed
                    stream.sums["data_losses",] += lost_data

    def samples(self) -> list[MetricSample]:
        """All values now."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            found: list[MetricSample] = []
            for key, stream in sorted(self._streams.items()):
                found += [(name, key, stream.sums[name,]) for name in LASTING]
                if stream.report is not None:
                    found += self._of_stream(key, stream, stream.report, now_s)
            return found

    def _of_stream(
        self, key: Key, stream: _Stream, report: SourceReport, now_s: float
    ) -> Iterator[MetricSample]:
        age_s = max(0.0, now_s - stream.reported_s)
        oldest_ms = report.oldest_unresolved_ms
        totals = {name: stream.sums[name,] for name in ("batches", *report.totals)}
        values: dict[str, float] = {
            **{name: total for name, total in totals.items() if name not in LASTING},
            "stream_queued_records": report.unresolved,
            "stream_oldest_unresolved_seconds": oldest_ms / 1000 + age_s if oldest_ms else 0.0,
            "reading_held": report.outage,
            "readable_shards": report.readable_shards,
            "report_age_seconds": age_s,
            **_lag("stream_", report.lag_ms, age_s, report.retention_ms),
        }
        if stream.batch_s is not None:
            values["last_batch_age_seconds"] = max(0.0, now_s - stream.batch_s)
        for name, value in values.items():
            yield name, key, value
        if report.fallbacks is not None:
            # All reasons from the beginning: an increase from nothing to one is not seen else.
            known = {name[1] for name in stream.sums if name[0] == FALLBACKS}
            for reason in sorted({*Fallback, *known}):
                yield FALLBACKS, (*key, reason), stream.sums[FALLBACKS, reason]
        if len(report.shards) > self._max_shards:
            return
        for shard_id, shard in report.shards.items():
            of_shard: dict[str, float] = {
                **{name: stream.sums[name, shard_id] for name in OF_SHARDS},
                "queued_records": shard.unresolved,
                **_lag("", shard.lag_ms, age_s, report.retention_ms),
            }
            for name, value in of_shard.items():
                yield name, (*key, shard_id), value


def _lag(scope: str, lag_ms: int, age_s: float, retention_ms: int | None) -> dict[str, float]:
    """The lag as an upper bound: since the report the reader may have stood still."""
    lag_s = lag_ms / 1000 + age_s
    found = {f"{scope}lag_seconds": lag_s}
    if retention_ms is not None:
        found[f"{scope}retention_left_seconds"] = max(0.0, retention_ms / 1000 - lag_s)
    return found


class QueryMetricsServer(CollectorServer):
    """Metrics of the session's Kinesis queries, over HTTP. Queries of other sources have no
    metrics. Port 0 chooses a free port. A context manager.

    Queries that are already running appear with their next report. `max_shards`: a report with more
    shards has no series with the label `shard`; 0 turns these series off. The source itself reports
    at most 100 shards.
    """

    def __init__(
        self,
        spark: SparkSession,
        port: int,
        host: str = LOOPBACK,
        *,
        max_shards: int = MAX_SHARDS,
    ) -> None:
        super().__init__(self, port, host)
        self._streams = spark.streams
        self._ledger = QueryLedger(max_shards, SystemClock(), self._last_progress)
        self._listens = False

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client's registry. Thread-safe. Sends no request: it shows what was
        last reported.
        """
        return families(self._ledger.samples())

    def start(self) -> None:
        """Start the server. Idempotent. Raises `ConfigError` if the address cannot be bound or the
        session accepts no listener, and `MissingExtraError`.
        """
        super().start()
        if self._listens:
            return
        try:
            with warnings.catch_warnings():
                # Spark Connect warns, and continues without the listener.
                warnings.filterwarnings("error", "Failed to add the listener")
                self._streams.addListener(self._ledger)
        except Exception as exc:
            super().close()
            raise ConfigError(
                "the Spark session does not accept a StreamingQueryListener, which the metrics "
                f"need ({failure_sentence(str(exc))})",
                "serve the metrics in the Spark driver's process",
            ) from exc
        self._listens = True

    def close(self) -> None:
        """Stop the server and remove the listener. Idempotent. It is no error if the session has
        already ended.
        """
        super().close()
        if self._listens:
            self._listens = False
            try:
                self._streams.removeListener(self._ledger)
            except Exception:  # py4j and Connect raise several kinds
                log.debug(
                    "the Spark session ended before the metrics listener was removed",
                    exc_info=True,
                )

    def _last_progress(self, query_id: str) -> Any:
        query = self._streams.get(query_id)
        return None if query is None else query.lastProgress


def families(samples: Iterable[MetricSample]) -> Iterator[Metric]:
    """All metrics of a Spark job, with these values."""
    names = [each.name.removeprefix(PREFIX) for each in DEFINITIONS if SPARK in each.by]
    found = {name: family(name) for name in names}
    for name, labels, value in samples:
        found[name].add_metric(labels, value)
    yield from found.values()


def serve(
    spark: SparkSession, port: int, host: str = LOOPBACK, *, max_shards: int = MAX_SHARDS
) -> QueryMetricsServer:
    """Start a `QueryMetricsServer` and return it, for the caller to close. Raises what its `start`
    does.
    """
    server = QueryMetricsServer(spark, port, host, max_shards=max_shards)
    server.start()
    return server
