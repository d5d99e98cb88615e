"""Kinesis for Spark Structured Streaming. The only package that imports pyspark."""

from spark_job.kinesis_source import KinesisSource
from spark_job.source import register

__all__ = ["KinesisSource", "register"]
