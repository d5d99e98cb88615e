"""Exports a spout's metrics to Prometheus. Needs prometheus-client (the extra `metrics`), imported
on first use.

The metrics are read at each scrape, so they cost nothing in between. Series with the label `shard`
exist for the shards that are assigned now. When a shard is released its series end, and its counts
stay in the series of the stream.

| name | labels | meaning |
| --- | --- | --- |
| `kinesis_spout_records_emitted_total` | stream, shard | deliveries |
| `..._acked_total`, `failed`, `retried`, `timed_out`, `dead_lettered`, `malformed` | same | |
| `kinesis_spout_pending_records`, `kinesis_spout_queued_records` | same | without an outcome |
| `kinesis_spout_refused_letters` | same | dead letters that the sink does not take |
| `kinesis_spout_lag_seconds` | same | behind the service's time |
| `kinesis_spout_latency_seconds` | same, le | from a record's arrival to its ack |
| `kinesis_spout_stream_...` | stream | each of the above, over all shards |
| `kinesis_spout_wait_seconds_total` | stream, reason | waits of `emissions()`: idle, at_limit |
| `kinesis_spout_failing_seconds` | stream, part | how long the outage has lasted; 0 without one |
| `kinesis_spout_outages_total` | stream, part | fetch, retries, listing, commit, letters |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import ConfigError, KinesisError, MissingExtraError
from kinesis_spout.spout.metrics import LATENCY_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from prometheus_client.metrics_core import CounterMetricFamily, Metric

    from kinesis_spout.spout.kinesis_spout import KinesisSpout
    from kinesis_spout.spout.metrics import ShardMetrics, SpoutMetrics

_COUNTS = {
    "emitted": "Deliveries, retries included",
    "acked": "Records that were acked",
    "failed": "Deliveries that failed, time-outs included",
    "retried": "Deliveries after the first of a record",
    "timed_out": "Deliveries without an outcome by their deadline",
    "dead_lettered": "Records that were dead-lettered",
    "malformed": "Records that do not decode",
}
_GAUGES = {
    "pending_records": "Records that were delivered and have no outcome",
    "queued_records": "Records that wait for a retry or a dead letter",
    "refused_letters": "Dead letters that were refused several times in a row",
    "lag_seconds": "How far the last emitted record is behind the service's time",
}
_PREFIX = "kinesis_spout_"
LOOPBACK = "127.0.0.1"


class SpoutCollector:
    """A collector for `prometheus_client.CollectorRegistry.register`. `collect` is thread-safe; it
    yields nothing before the spout is open.
    """

    def __init__(self, spout: KinesisSpout) -> None:
        _prometheus()
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
        stream = self._spout.config.stream_ref.name
        shards = [((stream, shard_id), shard) for shard_id, shard in metrics.shards.items()]
        yield from _families(_PREFIX, ("stream", "shard"), shards)
        yield from _families(f"{_PREFIX}stream_", ("stream",), [((stream,), metrics.total)])
        yield _waits(stream, metrics)
        yield from _outages(stream, metrics)


class MetricsServer:
    """An HTTP server for scrapes, with a registry of its own. Port 0 takes a free port. A context
    manager.
    """

    def __init__(self, spout: KinesisSpout, port: int, host: str = LOOPBACK) -> None:
        self._spout = spout
        self._host = host
        self.port = port
        self._running: tuple[Any, Any] | None = None

    def start(self) -> None:
        """Idempotent. Raises `ConfigError` when the address cannot be bound, and
        `MissingExtraError`.
        """
        if self._running is not None:
            return
        client = _prometheus()
        registry = client.CollectorRegistry()
        registry.register(SpoutCollector(self._spout))
        try:
            self._running = client.start_http_server(self.port, self._host, registry)
        except OSError as exc:
            raise ConfigError.of(
                "port",
                f"cannot be bound at {self._host}: {exc.strerror}; use another",
                self.port,
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def serve(spout: KinesisSpout, port: int, host: str = LOOPBACK) -> MetricsServer:
    """Start a `MetricsServer` and return it; the caller closes it. Raises as its `start`."""
    server = MetricsServer(spout, port, host)
    server.start()
    return server


def _prometheus() -> Any:
    try:
        import prometheus_client  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as exc:
        raise MissingExtraError(
            "metrics for Prometheus need prometheus-client, which is not installed; pip install "
            "'kinesis-spout[metrics]'"
        ) from exc
    return prometheus_client


def _families(
    prefix: str, labels: tuple[str, ...], found: Sequence[tuple[tuple[str, ...], ShardMetrics]]
) -> Iterator[Metric]:
    from prometheus_client.metrics_core import (  # noqa: PLC0415  # an extra
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    for name, meaning in _COUNTS.items():
        counter = CounterMetricFamily(f"{prefix}records_{name}", meaning, labels=labels)
        for values, one in found:
            counter.add_metric(values, getattr(one.counts, name))
        yield counter
    for name, meaning in _GAUGES.items():
        gauge = GaugeMetricFamily(prefix + name, meaning, labels=labels)
        for values, one in found:
            if (value := _gauge(one, name)) is not None:
                gauge.add_metric(values, value)
        yield gauge
    histogram = HistogramMetricFamily(
        f"{prefix}latency_seconds", "From a record's arrival to its ack", labels=labels
    )
    for values, one in found:
        histogram.add_metric(
            values,
            buckets=cumulative(one.counts.latency),
            sum_value=one.counts.latency_sum_ms / 1000,
        )
    yield histogram


def _gauge(one: ShardMetrics, name: str) -> float | None:
    if name == "lag_seconds":
        return None if one.lag_ms is None else one.lag_ms / 1000
    counts = {
        "pending_records": one.pending,
        "queued_records": one.queued,
        "refused_letters": one.refused,
    }
    return counts[name]


def _waits(stream: str, metrics: SpoutMetrics) -> CounterMetricFamily:
    from prometheus_client.metrics_core import CounterMetricFamily  # noqa: PLC0415  # an extra

    waits = CounterMetricFamily(
        f"{_PREFIX}wait_seconds", "Seconds that emissions() waited", labels=("stream", "reason")
    )
    waits.add_metric((stream, "idle"), metrics.waits.idle_s)
    waits.add_metric((stream, "at_limit"), metrics.waits.at_limit_s)
    return waits


def _outages(stream: str, metrics: SpoutMetrics) -> Iterator[Metric]:
    from prometheus_client.metrics_core import (  # noqa: PLC0415  # an extra
        CounterMetricFamily,
        GaugeMetricFamily,
    )

    labels = ("stream", "part")
    failing = GaugeMetricFamily(
        f"{_PREFIX}failing_seconds",
        "How long a part of the spout's work has failed and been tried again; 0 when it does not",
        labels=labels,
    )
    for part, seconds in metrics.failing_s.items():
        failing.add_metric((stream, part), seconds)
    yield failing
    outages = CounterMetricFamily(
        f"{_PREFIX}outages",
        "Outages of a part of the spout's work: fetch, retries, listing, commit, letters",
        labels=labels,
    )
    for part, count in metrics.outages.items():
        outages.add_metric((stream, part), count)
    yield outages


def cumulative(latency: list[int]) -> list[tuple[str, int]]:
    """`ShardCounts.latency` as (le, number of acks within `le` seconds).

    Exact, as latencies are whole ms: bucket n ends 1 ms below 2 ** n ms.
    """
    buckets = []
    seen = 0
    for bucket in range(LATENCY_BUCKETS - 1):
        seen += latency[bucket]
        buckets.append((str((2**bucket - 1) / 1000), seen))
    return [*buckets, ("+Inf", seen + latency[-1])]
