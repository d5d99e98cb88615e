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
    from collections.abc import Iterator, Sequence

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
    for name in ("pending_records", "queued_records", "refused_letters", "lag_seconds"):
        gauge = family(scope + name)
        for values, one in found:
            if (value := _gauge(one, name)) is not None:
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


def _gauge(one: ShardMetrics, name: str) -> float | None:
    if name == "lag_seconds":
        return None if one.lag_ms is None else one.lag_ms / 1000
    counts = {
        "pending_records": one.pending,
        "queued_records": one.queued,
        "refused_letters": one.refused,
    }
    return counts[name]


def _of_application(here: tuple[str, ...], metrics: SpoutMetrics) -> Iterator[Metric]:
    waits = family("wait_seconds")
    waits.add_metric((*here, "idle"), metrics.waits.idle_s)
    waits.add_metric((*here, "at_limit"), metrics.waits.at_limit_s)
    yield waits
    failing = family("failing_seconds")
    for part, seconds in metrics.failing_s.items():
        failing.add_metric((*here, part), seconds)
    yield failing
    outages = family("outages")
    for part, count in metrics.outages.items():
        outages.add_metric((*here, part), count)
    yield outages
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
