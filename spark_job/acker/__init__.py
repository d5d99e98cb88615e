"""The acker: tracks the rows that are derived from each record, up to the sinks.

`spark_job.acker.operators` shows how to use it, and `spark_job.acker.shares` explains the maths.
"""

from spark_job.acker.operators import (
    anchor,
    branch,
    filter,  # noqa: A004  # named like the DataFrame's own
    merge,
    settle,
    split,
    unanchored,
)
from spark_job.acker.run import AckerError
from spark_job.acker.shares import ANCHOR

__all__ = [
    "ANCHOR",
    "AckerError",
    "anchor",
    "branch",
    "filter",
    "merge",
    "settle",
    "split",
    "unanchored",
]
