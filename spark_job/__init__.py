"""The Kinesis source for Spark Structured Streaming.

Of the four packages, only this one needs pyspark to be imported.
"""

from spark_job.data_source import register
from spark_job.dead_letter.dead_letter import DeadLetter
from spark_job.kinesis_source import KinesisSource
from spark_job.tracking.outcomes import Reject, Retry
from spark_job.tracking.tracked_batch import TrackedBatch

__all__ = ["DeadLetter", "KinesisSource", "Reject", "Retry", "TrackedBatch", "register"]
