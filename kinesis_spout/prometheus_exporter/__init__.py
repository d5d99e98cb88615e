"""What Prometheus scrapes: the spout's metrics, and the server. Importing it starts nothing, and
imports neither the spout nor prometheus-client.
"""

from kinesis_spout.prometheus_exporter.spout_collector import MetricsServer, SpoutCollector, serve

__all__ = ["MetricsServer", "SpoutCollector", "serve"]
