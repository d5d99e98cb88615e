"""Kinesis for Spark Structured Streaming. The only package that needs pyspark to be imported."""

from spark_job.kinesis_source import KinesisSource
from spark_job.source import register

__all__ = ["KinesisSource", "register"]
