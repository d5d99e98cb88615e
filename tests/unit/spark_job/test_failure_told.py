"""What a tracked query's failure is told as."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkRuntimeError

from kinesis_spout.errors import KinesisError
from spark_job.query_failure import failure_told

SPARKS = (
    "[STREAM_FAILED] Job aborted\n"
    "Traceback (most recent call last):\n"
    '  File "/etl.py", line 3, in <module>\n'
    "kinesis_spout.errors.AccessDeniedError: GetRecords failed; allow kinesis:GetRecords\n"
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(28, "No space left", "/data"),
            "the function given to tracked(...) raised OSError: [Errno 28] No space left: '/data'",
        ),
        (
            KinesisError("the dead letters of plan 7 cannot be written; repair the sink"),
            "the dead letters of plan 7 cannot be written; repair the sink",
        ),
        (
            PySparkRuntimeError(SPARKS),
            "GetRecords failed; allow kinesis:GetRecords",
        ),
    ],
)
def test_the_error_that_fails_a_batch_is_told_with_where_it_comes_from(
    error: Exception, told: str
) -> None:
    """Of a Spark error, the cause in its pages of text."""
    assert failure_told(error) == told
