"""What Prometheus scrapes: every metric, with its name, kind, labels and meaning, and who has it;
the HTTP server for scrapes; and the exporter of a spout. Importing it starts nothing, and imports
neither the spout nor prometheus-client (the extra `metrics`), which is imported on first use.

A metric of both exporters means the same in both. Metrics of shards come twice: with the label
`shard`, for the shards that are read now, and as `kinesis_spout_stream_...` over all shards. When a
shard is released its series with the label end, and its counts stay in the series of the stream.
The metrics are read at each scrape, so they cost nothing in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import ConfigError, KinesisError, MissingExtraError
from kinesis_spout.programs import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Protocol, Self

    from prometheus_client.metrics_core import Metric

    from kinesis_spout.spout.kinesis_spout import KinesisSpout
    from kinesis_spout.spout.metrics import ShardMetrics

    class Collector(Protocol):
        """What Prometheus's registry takes."""

        def collect(self) -> Iterator[Metric]: ...


__all__ = ["MetricsServer", "SpoutCollector", "serve"]

LOOPBACK = "127.0.0.1"
PREFIX = "kinesis_spout_"
APPLICATION = ("application", "stream")
SPOUT, SPARK = "spout", "Spark"
BOTH = (SPOUT, SPARK)


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. `name`: of the family, without `_total`. `by`: who has it."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...]
    by: tuple[str, ...]

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series, as a query writes them."""
        match self.kind:
            case Kind.COUNTER:
                return (f"{self.name}_total",)
            case Kind.HISTOGRAM:
                return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


By = str | tuple[str, ...]


def _metric(kind: Kind, name: str, by: By, meaning: str, label: str | None = None) -> Definition:
    labels = APPLICATION if label is None else (*APPLICATION, label)
    return Definition(PREFIX + name, kind, meaning, labels, (by,) if isinstance(by, str) else by)


def _shard_metric(
    kind: Kind, name: str, by: By, meaning: str, shards_by: By | None = None
) -> tuple[Definition, Definition]:
    """A metric of each shard, and over all shards. `shards_by`: who has it of each shard, unless
    both are had by the same.
    """
    of_each = _metric(kind, name, shards_by or by, meaning, label="shard")
    return of_each, _metric(kind, f"stream_{name}", by, meaning)


_counter, _gauge = partial(_metric, Kind.COUNTER), partial(_metric, Kind.GAUGE)
_shard_counter = partial(_shard_metric, Kind.COUNTER)
_shard_gauge = partial(_shard_metric, Kind.GAUGE)

DEFINITIONS: tuple[Definition, ...] = (
    *_shard_counter("records_emitted", BOTH, "Number of record deliveries, including retries"),
    *_shard_counter("records_acked", BOTH, "Number of records that were acked", shards_by=SPOUT),
    *_shard_counter(
        "records_failed",
        BOTH,
        "Number of deliveries that failed, including timeouts",
        shards_by=SPOUT,
    ),
    *_shard_counter(
        "records_retried", BOTH, "Number of record redeliveries, not counting first deliveries"
    ),
    *_shard_counter(
        "records_timed_out",
        SPOUT,
        "Number of deliveries that timed out, because the program neither acked nor failed "
        "the record in time",
    ),
    *_shard_counter(
        "records_dead_lettered", BOTH, "Number of records that were dead-lettered", shards_by=SPOUT
    ),
    _counter(
        "stream_records_dropped",
        SPARK,
        "Number of records that were dropped without a dead letter, because on_exhausted is drop",
    ),
    _counter(
        "stream_records_pushed",
        SPARK,
        "Number of records that were read by subscription (enhanced fan-out)",
    ),
    _counter(
        "stream_records_polled",
        SPARK,
        "Number of records that were read with GetRecords although the query uses enhanced fan-out",
    ),
    *_shard_counter(
        "records_malformed", SPOUT, "Number of records whose payload could not be decoded"
    ),
    *_shard_counter(
        "records_left_out",
        SPOUT,
        "Number of user records of aggregates that were not delivered, because their hash keys "
        "belong to other shards",
    ),
    *_shard_gauge(
        "pending_records",
        SPOUT,
        "Number of records in flight (delivered, but not yet acked or failed)",
    ),
    *_shard_gauge("queued_records", BOTH, "Number of records waiting for a retry or a dead letter"),
    *_shard_gauge(
        "refused_letters",
        SPOUT,
        "Number of dead letters that their destination has refused several times in a row. The "
        "spout retries them",
    ),
    _gauge(
        "stream_oldest_unresolved_seconds",
        SPARK,
        "Seconds since the first failure of the oldest record waiting for a retry or a dead "
        "letter; 0 if no record is waiting",
    ),
    *_shard_gauge(
        "lag_seconds",
        BOTH,
        "Lag behind the shard's newest record, in seconds of arrival time. A stream's lag is the "
        "largest lag of its shards. A Spark job reports an upper bound",
    ),
    *_shard_gauge(
        "retention_left_seconds",
        SPARK,
        "Minimum number of seconds until the shard's oldest unread record expires. A stream's "
        "value is the smallest value of its shards",
    ),
    *_shard_metric(
        Kind.HISTOGRAM,
        "latency_seconds",
        SPOUT,
        "Seconds from a record's arrival on the stream to its ack",
    ),
    _counter(
        "wait_seconds",
        SPOUT,
        "Seconds for which the spout's emissions() waited for records",
        label="reason",
    ),
    _gauge(
        "failing_seconds",
        SPOUT,
        "Seconds since the operation in the label part began to fail; 0 while the operation "
        "succeeds",
        label="part",
    ),
    _counter(
        "outages",
        SPOUT,
        "Number of outages of the operation in the label part. The operations are fetch, "
        "retries, listing, commit, letters and scheme",
        label="part",
    ),
    _counter(
        "subscriptions",
        SPOUT,
        "Number of enhanced fan-out subscriptions that delivered at least one event",
    ),
    _counter(
        "subscription_failures",
        SPOUT,
        "Number of enhanced fan-out subscriptions that were refused or broke",
    ),
    _counter(
        "subscription_fallbacks",
        SPARK,
        "Number of times that a shard was read with GetRecords because its enhanced fan-out "
        "subscription had failed. The reasons are refused, in_use, missing, broken, silent and "
        "ended",
        label="reason",
    ),
    _gauge(
        "polled_shards",
        SPOUT,
        "Number of shards that are read with GetRecords because they have no enhanced fan-out "
        "subscription",
    ),
    _gauge(
        "reading_held",
        SPARK,
        "1 while the query reads no new records because most records fail, otherwise 0",
    ),
    _gauge("readable_shards", SPARK, "Number of shards that the query currently reads"),
    _counter("batches", SPARK, "Number of batches that read this stream"),
    _gauge(
        "last_batch_age_seconds",
        SPARK,
        ("Seconds since the end of the last batch that read this stream"),
    ),
    _gauge(
        "report_age_seconds",
        SPARK,
        "Seconds since the driver last updated this stream's metrics. The driver does not update "
        "metrics while a batch is running",
    ),
    _counter(
        "data_losses",
        SPARK,
        "Number of possible record losses that running and ended queries have reported",
    ),
    _counter(
        "query_failures",
        SPARK,
        "Number of queries that ended with an error",
    ),
)
BY_NAME = {one.name: one for one in DEFINITIONS}


class CollectorServer:
    """Serves what one collector gives, with a registry of its own. Port 0 takes a free port. A
    context manager.
    """

    def __init__(self, collector: Collector, port: int, host: str = LOOPBACK) -> None:
        self._collector = collector
        self._host = host
        self.port = port
        self._running: tuple[Any, Any] | None = None

    def start(self) -> None:
        """Idempotent. Raises `ConfigError` when the address cannot be bound, and
        `MissingExtraError`.
        """
        if self._running is not None:
            return
        client = prometheus()
        registry = client.CollectorRegistry()
        registry.register(self._collector)
        try:
            self._running = client.start_http_server(self.port, self._host, registry)
        except (OSError, OverflowError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise ConfigError.of(
                "port",
                f"cannot be bound at {self._host}: {reason}",
                self.port,
                remedy="use another port for the metrics",
            ) from exc
        self.port = self._running[0].server_port

    def close(self) -> None:
        """Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            server, thread = running
            server.shutdown()
            server.server_close()
            thread.join()

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}/metrics"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prometheus() -> Any:
    """The module prometheus_client. Raises `MissingExtraError`."""
    try:
        import prometheus_client  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as exc:
        raise MissingExtraError(
            "metrics for Prometheus need the package prometheus-client, which is not installed",
            how_to_install("metrics"),
        ) from exc
    return prometheus_client


def family(name: str) -> Any:
    """An empty family of the metric that `definitions` calls `kinesis_spout_<name>`."""
    from prometheus_client import metrics_core  # noqa: PLC0415  # an extra

    one = BY_NAME[PREFIX + name]
    kinds = {
        Kind.COUNTER: metrics_core.CounterMetricFamily,
        Kind.GAUGE: metrics_core.GaugeMetricFamily,
        Kind.HISTOGRAM: metrics_core.HistogramMetricFamily,
    }
    return kinds[one.kind](one.name, one.meaning, labels=one.labels)


_COUNTS = (
    *("emitted", "acked", "failed", "retried"),
    *("timed_out", "dead_lettered", "malformed", "left_out"),
)
_GAUGES: dict[str, Callable[[ShardMetrics], float | None]] = {
    "pending_records": lambda one: one.pending,
    "queued_records": lambda one: one.queued,
    "refused_letters": lambda one: one.refused,
    "lag_seconds": lambda one: None if one.lag_ms is None else one.lag_ms / 1000,
}


class SpoutCollector:
    """A collector for `prometheus_client.CollectorRegistry.register`. `collect` is thread-safe, and
    yields nothing before the spout is open.
    """

    def __init__(self, spout: KinesisSpout) -> None:
        prometheus()
        self._spout = spout

    def describe(self) -> list[Metric]:
        """Empty, because the registry would otherwise call `collect` when the collector is
        registered.
        """
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            metrics = self._spout.metrics()
        except KinesisError:
            return
        config = self._spout.config
        here = (config.application or "", config.stream_ref.name)
        shards = [((*here, shard_id), shard) for shard_id, shard in metrics.shards.items()]
        yield from _families("", shards)
        yield from _families("stream_", [(here, metrics.total)])
        waits = {"idle": metrics.waits.idle_s, "at_limit": metrics.waits.at_limit_s}
        for name, by_label in (
            ("wait_seconds", waits),
            ("failing_seconds", metrics.failing_s),
            ("outages", metrics.outages),
        ):
            yield _filled(name, (((*here, label), value) for label, value in by_label.items()))
        if (subscribed := metrics.subscriptions) is not None:
            yield _filled("subscriptions", [(here, subscribed.opened)])
            yield _filled("subscription_failures", [(here, subscribed.failed)])
            yield _filled("polled_shards", [(here, subscribed.polled_shards)])


class MetricsServer(CollectorServer):
    """An HTTP server for scrapes, with its own registry. Port 0 chooses a free port. A context
    manager.
    """

    def __init__(self, spout: KinesisSpout, port: int, host: str = LOOPBACK) -> None:
        super().__init__(SpoutCollector(spout), port, host)


def serve(spout: KinesisSpout, port: int, host: str = LOOPBACK) -> MetricsServer:
    """Start a `MetricsServer` and return it; the caller closes it. Raises what its `start` does."""
    server = MetricsServer(spout, port, host)
    server.start()
    return server


def _filled(name: str, samples: Iterable[tuple[tuple[str, ...], float | None]]) -> Metric:
    """The family with these values, by their labels. It has none where nobody knows it."""
    filled: Metric = family(name)
    for labels, value in samples:
        if value is not None:
            filled.add_metric(labels, value)  # type: ignore[attr-defined]  # of each kind of family
    return filled


def _families(
    scope: str, found: Sequence[tuple[tuple[str, ...], ShardMetrics]]
) -> Iterator[Metric]:
    for name in _COUNTS:
        counts = ((values, getattr(one.counts, name)) for values, one in found)
        yield _filled(f"{scope}records_{name}", counts)
    for name, of in _GAUGES.items():
        yield _filled(scope + name, ((values, of(one)) for values, one in found))
    histogram = family(f"{scope}latency_seconds")
    for values, one in found:
        histogram.add_metric(
            values,
            buckets=cumulative(one.counts.latency),
            sum_value=one.counts.latency_sum_ms / 1000,
        )
    yield histogram


def cumulative(latency: list[int]) -> list[tuple[str, int]]:
    """`ShardCounts.latency` as (le, number of acks within `le` seconds).

    Exact, as latencies are whole ms: bucket n ends 1 ms below 2 ** n ms.
    """
    buckets = []
    seen = 0
    for bucket, count in enumerate(latency[:-1]):
        seen += count
        buckets.append((str((2**bucket - 1) / 1000), seen))
    return [*buckets, ("+Inf", seen + latency[-1])]
