"""Kinesis for Spark Structured Streaming. The only package that needs pyspark to be imported."""

from spark_job.dead_letter import DeadLetter
from spark_job.kinesis_source import KinesisSource
from spark_job.outcomes import Reject, Retry
from spark_job.source import register
from spark_job.tracked_batch import TrackedBatch

__all__ = ["DeadLetter", "KinesisSource", "Reject", "Retry", "TrackedBatch", "register"]
