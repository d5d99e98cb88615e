"""What a tracked query's failure is told as."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import PySparkRuntimeError

from kinesis_spout.errors import KinesisError
from spark_job.query_failure import failure_told, for_spark
from tests.support.outcomes.odd_errors import ODD_ERRORS

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


@pytest.mark.parametrize("error", ODD_ERRORS, ids=lambda one: type(one).__name__)
def test_the_error_of_a_function_is_one_that_spark_can_take(error: BaseException) -> None:
    """And its sentence can be stored."""
    taken = for_spark(error, "the function given to tracked(...)")
    assert isinstance(taken, Exception)
    trace = "".join(traceback.format_exception(taken))
    assert len(trace.encode()) < 1_000_000
    assert type(error).__name__ in trace
    assert failure_told(taken).startswith("the function given to tracked(...) raised")
    assert failure_told(error).encode()


def test_an_error_that_spark_can_take_is_left_as_it_is() -> None:
    """An interrupt, too: it is no outcome."""
    for error in (ValueError("bad"), PySparkRuntimeError(SPARKS), KeyboardInterrupt()):
        assert for_spark(error, "the function") is error
