"""The acker: follows what is derived from each record to the sinks. `operators` tells how it is
used.
"""

from spark_job.acker.operators import (
    ANCHOR,
    AckerError,
    anchor,
    branch,
    filter,  # noqa: A004  # named like the DataFrame's own
    merge,
    settle,
    split,
    unanchored,
)

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
