"""Public import path of the spout's Prometheus exporter (`kinesis_spout.spout`)."""

from kinesis_spout.spout.prometheus_exporter import MetricsServer, SpoutCollector, serve

__all__ = ["MetricsServer", "SpoutCollector", "serve"]
