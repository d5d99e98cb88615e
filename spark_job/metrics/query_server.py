"""`serve`: a listener on the queries of a session, and an HTTP server for scrapes.

Spark calls the listener in a thread of its own. It waits for no network and no lock that is held
for long. An error in it would end up in Spark's log at each batch, so it is logged once here and
the query goes on.

Spark tells an idle query's figures to nobody: the event names the query, whose last progress the
listener asks for then.
"""

from __future__ import annotations

import json
import logging
import warnings
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
    prometheus,
)
from spark_job.metrics.ledger import QueryLedger
from spark_job.metrics.source_report import reports_in
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("kinesis_spout")
MAX_SHARDS = 100
LOSS = "DataLossError"


class QueryCollector:
    """A collector for `prometheus_client.CollectorRegistry.register`. `collect` is thread-safe, and
    asks nobody: it shows what was reported.
    """

    def __init__(self, ledger: QueryLedger, clock: Clock) -> None:
        prometheus()
        self._ledger = ledger
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        names = [each.name for each in DEFINITIONS if SPARK in each.by]
        families = {name: family(name) for name in (each.removeprefix(PREFIX) for each in names)}
        for sample in self._ledger.samples(self._clock.monotonic_s()):
            families[sample.name].add_metric(sample.labels, sample.value)
        yield from families.values()


class LedgerListener(StreamingQueryListener):
    """Writes what Spark reports of queries into a ledger. Raises nothing."""

    def __init__(
        self, ledger: QueryLedger, clock: Clock, last_progress: Callable[[str], Any]
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._last_progress = last_progress
        self._has_logged = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known of the query before its first report."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._safely(lambda: self._add(event.progress, is_batch=True))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._safely(lambda: self._add(self._last_progress(str(event.id)), is_batch=False))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._safely(
            lambda: self._ledger.on_end(
                str(event.runId),
                failed=event.exception is not None,
                lost_data=LOSS in (event.exception or ""),
            )
        )

    def _add(self, progress: Any, *, is_batch: bool) -> None:
        if progress is None:  # the query has ended meanwhile, or has not begun
            return
        self._ledger.on_progress(
            str(progress.runId),
            reports_in(json.loads(progress.json)),
            self._clock.monotonic_s(),
            is_batch=is_batch,
        )

    def _safely(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            if not self._has_logged:
                self._has_logged = True
                log.exception(
                    "a report is missing from the metrics of Spark's queries. The queries "
                    "continue. Later errors of this kind are not logged"
                )


class QueryMetricsServer(CollectorServer):
    """Metrics of the session's Kinesis queries, over HTTP. Other sources have none. Port 0 takes a
    free port. A context manager.

    Queries that run already appear with their next report. `max_shards`: with more shards in a
    report there are no series with the label `shard`; 0 for none ever. The source itself reports at
    most 100.
    """

    def __init__(
        self,
        spark: SparkSession,
        port: int,
        host: str = LOOPBACK,
        *,
        max_shards: int = MAX_SHARDS,
    ) -> None:
        clock = SystemClock()
        ledger = QueryLedger(max_shards)
        super().__init__(QueryCollector(ledger, clock), port, host)
        self._streams = spark.streams
        self._listener = LedgerListener(ledger, clock, self._last_progress)
        self._listens = False

    def start(self) -> None:
        """Idempotent. Raises `ConfigError` when the address cannot be bound or the session takes no
        listener, and `MissingExtraError`.
        """
        super().start()
        if self._listens:
            return
        try:
            with warnings.catch_warnings():
                # Spark Connect warns, and goes on without the listener.
                warnings.filterwarnings("error", "Failed to add the listener")
                self._streams.addListener(self._listener)
        except Exception as exc:
            super().close()
            raise ConfigError(
                "the session does not accept a StreamingQueryListener, which the metrics need "
                f"({failure_sentence(str(exc))})",
                "serve the metrics in the process of the Spark driver",
            ) from exc
        self._listens = True

    def close(self) -> None:
        """Idempotent. Removes the listener; a session that has ended already is no error."""
        super().close()
        if self._listens:
            self._listens = False
            try:
                self._streams.removeListener(self._listener)
            except Exception:  # py4j and Connect raise several kinds
                log.debug("the session has ended before its listener was removed", exc_info=True)

    def _last_progress(self, query_id: str) -> Any:
        query = self._streams.get(query_id)
        return None if query is None else query.lastProgress


def serve(
    spark: SparkSession, port: int, host: str = LOOPBACK, *, max_shards: int = MAX_SHARDS
) -> QueryMetricsServer:
    """Start a `QueryMetricsServer` and return it; the caller closes it. Raises as its `start`."""
    server = QueryMetricsServer(spark, port, host, max_shards=max_shards)
    server.start()
    return server
