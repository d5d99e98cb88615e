"""The Kinesis source for Spark Structured Streaming.

Of the four packages, only this one needs pyspark, which its modules import where they use it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_job.dead_letter.dead_letter import DeadLetter
    from spark_job.kinesis_source import KinesisSource, KinesisStreams
    from spark_job.registration import register
    from spark_job.tracking.outcomes import Reject, Retry
    from spark_job.tracking.tracked_batch import TrackedBatch

__all__ = [
    "DeadLetter",
    "KinesisSource",
    "KinesisStreams",
    "Reject",
    "Retry",
    "TrackedBatch",
    "register",
]

_MODULES = {
    "DeadLetter": "spark_job.dead_letter.dead_letter",
    "KinesisSource": "spark_job.kinesis_source",
    "KinesisStreams": "spark_job.kinesis_source",
    "Reject": "spark_job.tracking.outcomes",
    "Retry": "spark_job.tracking.outcomes",
    "TrackedBatch": "spark_job.tracking.tracked_batch",
    "register": "spark_job.registration",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: a Spark worker that reads needs `data_source` only."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_MODULES[name]), name)
    return value
