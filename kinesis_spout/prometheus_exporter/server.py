"""The HTTP server for scrapes, and what an exporter needs of prometheus-client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import ConfigError, MissingExtraError
from kinesis_spout.programs import how_to_install
from kinesis_spout.prometheus_exporter.definitions import BY_NAME, PREFIX, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol, Self

    from prometheus_client.metrics_core import Metric

    class Collector(Protocol):
        """What Prometheus's registry takes."""

        def collect(self) -> Iterator[Metric]: ...


LOOPBACK = "127.0.0.1"


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
        except OSError as exc:
            raise ConfigError.of(
                "port",
                f"cannot be bound at {self._host}: {exc.strerror}",
                self.port,
                remedy="use another port",
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
            "metrics for Prometheus need prometheus-client, which is not installed",
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
