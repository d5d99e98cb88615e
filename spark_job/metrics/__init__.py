"""Metrics of the Kinesis queries in a Spark session, for Prometheus. Needs prometheus-client (the
extra `metrics`), imported on first use.
"""

from spark_job.metrics.query_server import QueryMetricsServer, serve

__all__ = ["QueryMetricsServer", "serve"]
