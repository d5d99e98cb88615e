"""The cause of a failed query is found in the text that Spark wraps around it, and is told."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import PySparkRuntimeError

from kinesis_spout.errors import KinesisError
from spark_job.query_failure import (
    MAX_LENGTH,
    failure_sentence,
    failure_told,
    for_spark,
    named_error,
)
from state.errors import PlanClosedError
from state.store.runs import ReportedError
from tests.support.outcomes.odd_errors import ODD_ERRORS

PROXY = """An exception was raised by the Python Proxy. \
Return Message: Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 643, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
OSError: refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 1, in f
{raised}
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
Logical Plan:
~WriteToMicroBatchDataSourceV1
"""


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        ("ValueError: no such thing\nsecond line\n", "ValueError: no such thing second line"),
        ("kinesis_spout.errors.StreamNotFoundError: no stream orders\n", "no stream orders"),
        (
            "pyspark.errors.AnalysisException: [A.B] `no` is not there. SQLSTATE: 42703;\nProject",
            "AnalysisException: `no` is not there.",
        ),
        (
            "kinesis_spout.errors.KinesisError: no answer\n\tat a.X(Y.scala:1)\nCaused by: Z",
            "no answer",
        ),
    ],
)
def test_the_python_error_at_the_end_of_the_last_traceback_is_the_cause(
    raised: str, sentence: str
) -> None:
    """Without the Java stack that may follow."""
    assert failure_sentence(PROXY.format(raised=raised)) == sentence


JOB = (
    "Job aborted due to stage failure: Task 0 in stage 24.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 24.0 (TID 27) (host executor driver): "
    "java.io.IOException: Mkdirs failed to create file:/x/plan=1-a\n\tat a.b(C.java:1)\n"
)
CALLED = "An error occurred while calling o1.save.\n"
OF_TASK = "IOException: Mkdirs failed to create file:/x/plan=1-a"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated: disk full SQLSTATE: XXKST\n=== Query ===\n",
            "Query [id = 1] terminated: disk full",
        ),
        ("", "the query failed without saying why"),
        (
            f"{CALLED}: java.io.IOException: mkdir of /no/out failed\n\tat org.a.X(Y.java:1)\n",
            "IOException: mkdir of /no/out failed",
        ),
        (JOB, OF_TASK),
        (f"{CALLED}: org.apache.spark.SparkException: {JOB}", OF_TASK),
        ("x" * 10_000, f"{'x' * MAX_LENGTH}..."),
    ],
)
def test_without_a_python_error_the_first_line_of_spark_or_java_is_the_cause(
    text: str, sentence: str
) -> None:
    """Not what a task's error begins with: stages, task ids and the addresses of executors."""
    assert failure_sentence(text) == sentence


SPARKS = PySparkRuntimeError(
    "[STREAM_FAILED] Job aborted\nTraceback (most recent call last):\n"
    '  File "/etl.py", line 3, in <module>\nkinesis_spout.errors.AccessDeniedError: denied\n'
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(28, "No space left", "/data"),
            ReportedError(
                "the function given to tracked(...) raised OSError: [Errno 28] No space left: "
                "'/data'"
            ),
        ),
        (
            KinesisError("no dead letters", "repair the sink"),
            ReportedError("no dead letters", "repair the sink"),
        ),
        (SPARKS, ReportedError("denied")),
    ],
)
def test_the_error_that_fails_a_batch_is_told_with_where_it_comes_from(
    error: Exception, told: ReportedError
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
    assert failure_told(taken).message.startswith("the function given to tracked(...) raised")
    assert failure_told(error).message.encode()


def test_an_error_that_spark_can_take_is_left_as_it_is() -> None:
    """An interrupt, too: it is no outcome."""
    for error in (ValueError("bad"), SPARKS, KeyboardInterrupt()):
        assert for_spark(error, "the function") is error


@pytest.mark.parametrize(
    ("error", "named"),
    [
        # the name of the application has the stream's
        (PlanClosedError("plan 1-a of clicks-etl is closed"), "stream clicks: plan 1-a of"),
        (KinesisError("no stream clicks.eu"), "stream clicks: no stream clicks.eu"),
        (KinesisError("no stream clicks"), None),
        (KinesisError("the state /etl/clicks is gone"), None),
        (ValueError("no rates"), None),
    ],
)
def test_an_error_of_one_of_several_streams_names_it_once(
    error: Exception, named: str | None
) -> None:
    """That of another package stays as it is."""
    found = named_error("clicks", error)
    if named is None:
        assert found is error
    else:
        assert str(found).startswith(named)
        assert found.__cause__ is error
