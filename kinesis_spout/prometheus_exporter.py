"""The public name of the spout's Prometheus exporter; it is defined in `kinesis_spout.spout`."""

from kinesis_spout.spout.prometheus_exporter import MetricsServer, SpoutCollector, serve

__all__ = ["MetricsServer", "SpoutCollector", "serve"]
