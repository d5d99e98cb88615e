"""Exports a spout's metrics to Prometheus. Needs prometheus-client (the extra `metrics`), imported
on first use.

The metrics are read at each scrape, so they cost nothing in between. Series with the label `shard`
exist for the shards that are assigned now. When a shard is released its series end, and its counts
stay in the series of the stream. `kinesis_spout.prometheus_exporter.definitions` has their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from kinesis_spout.prometheus_exporter.server import (
    LOOPBACK,
    CollectorServer,
    family,
    prometheus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from kinesis_spout.spout.kinesis_spout import KinesisSpout
    from kinesis_spout.spout.metrics import ShardMetrics, SpoutMetrics

_COUNTS = (
    "emitted",
    "acked",
    "failed",
    "retried",
    "timed_out",
    "dead_lettered",
    "malformed",
    "left_out",
)
_GAUGES: dict[str, Callable[[ShardMetrics], float | None]] = {
    "pending_records": lambda one: one.pending,
    "queued_records": lambda one: one.queued,
    "refused_letters": lambda one: one.refused,
    "lag_seconds": lambda one: None if one.lag_ms is None else one.lag_ms / 1000,
}


class SpoutCollector:
    """A collector for `prometheus_client.CollectorRegistry.register`. `collect` is thread-safe; it
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
        yield from _of_application(here, metrics)


class MetricsServer(CollectorServer):
    """An HTTP server for scrapes, with a registry of its own. Port 0 takes a free port. A context
    manager.
    """

    def __init__(self, spout: KinesisSpout, port: int, host: str = LOOPBACK) -> None:
        super().__init__(SpoutCollector(spout), port, host)


def serve(spout: KinesisSpout, port: int, host: str = LOOPBACK) -> MetricsServer:
    """Start a `MetricsServer` and return it; the caller closes it. Raises as its `start`."""
    server = MetricsServer(spout, port, host)
    server.start()
    return server


def _families(
    scope: str, found: Sequence[tuple[tuple[str, ...], ShardMetrics]]
) -> Iterator[Metric]:
    for name in _COUNTS:
        counter = family(f"{scope}records_{name}")
        for values, one in found:
            counter.add_metric(values, getattr(one.counts, name))
        yield counter
    for name, of in _GAUGES.items():
        gauge = family(scope + name)
        for values, one in found:
            if (value := of(one)) is not None:
                gauge.add_metric(values, value)
        yield gauge
    histogram = family(f"{scope}latency_seconds")
    for values, one in found:
        histogram.add_metric(
            values,
            buckets=cumulative(one.counts.latency),
            sum_value=one.counts.latency_sum_ms / 1000,
        )
    yield histogram


def _of_application(here: tuple[str, ...], metrics: SpoutMetrics) -> Iterator[Metric]:
    waits = {"idle": metrics.waits.idle_s, "at_limit": metrics.waits.at_limit_s}
    for name, by_label in (
        ("wait_seconds", waits),
        ("failing_seconds", metrics.failing_s),
        ("outages", metrics.outages),
    ):
        labelled = family(name)
        for label, value in by_label.items():
            labelled.add_metric((*here, label), value)
        yield labelled
    subscribed = metrics.subscriptions
    if subscribed is None:
        return
    for name, value in (
        ("subscriptions", subscribed.opened),
        ("subscription_failures", subscribed.failed),
        ("polled_shards", subscribed.polled_shards),
    ):
        one = family(name)
        one.add_metric(here, value)
        yield one


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
