"""The cause of a failed query is found in the text that Spark wraps around it."""

from __future__ import annotations

import pytest

from spark_job.query_failure import MAX_LENGTH, failure_sentence

PROXY = """An exception was raised by the Python Proxy. \
Return Message: Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 643, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
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
        (
            "kinesis_spout.errors.StreamNotFoundError: stream orders is not there; create it\n",
            "stream orders is not there; create it",
        ),
        (
            "state.errors.StaleOwnerError: a newer owner has taken over\n",
            "a newer owner has taken over",
        ),
        ("ZeroDivisionError\n", "ZeroDivisionError"),
        (
            (
                "pyspark.errors.exceptions.captured.AnalysisException: [A.B] `nope` is not there. "
                "SQLSTATE: 42703;\nProject\n"
            ),
            "AnalysisException: `nope` is not there.",
        ),
    ],
)
def test_the_python_error_at_the_end_of_the_traceback_is_the_cause(
    raised: str, sentence: str
) -> None:
    assert failure_sentence(PROXY.format(raised=raised)) == sentence


def test_of_chained_tracebacks_the_last_counts() -> None:
    first = PROXY.format(
        raised="OSError: refused\n\n"
        "The above exception was the direct cause of the following exception:\n"
    )
    second = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
        "kinesis_spout.errors.KinesisError: no answer\n"
    )
    assert failure_sentence(first + second + "\tat org.apache.spark.api.python.X\n") == "no answer"


def test_a_java_stack_is_not_part_of_the_sentence() -> None:
    raised = (
        "kinesis_spout.errors.KinesisError: no answer\n"
        "\tat org.apache.spark.X(Y.scala:1)\nCaused by: Z"
    )
    assert failure_sentence(PROXY.format(raised=raised)) == "no answer"


def test_without_a_python_error_sparks_first_line_is_the_cause() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: disk full SQLSTATE: XXKST\n"
        "=== Streaming Query ===\n"
    )
    assert failure_sentence(text) == "Query [id = 1] terminated with exception: disk full"
    assert failure_sentence("") == "the query failed without saying why"


def test_a_java_error_without_its_stack_is_the_cause() -> None:
    text = (
        "An error occurred while calling o60.start.\n: java.io.IOException: mkdir of file:/no/out "
        "failed\n"
        "\tat org.apache.hadoop.fs.FileSystem.primitiveMkdir(FileSystem.java:1414)\n\tat "
        "org.apache.hadoop.fs.X(Y.java:1)\n"
    )
    assert failure_sentence(text) == "IOException: mkdir of file:/no/out failed"


def test_a_very_long_cause_is_cut() -> None:
    assert len(failure_sentence("x" * 10_000)) < MAX_LENGTH + 10


def test_the_error_of_a_task_is_the_cause_and_not_the_task() -> None:
    """Spark's message begins with stages, task ids and the addresses of executors."""
    task = (
        "Task 0 in stage 24.0 failed 1 times, most recent failure: "
        "Lost task 0.0 in stage 24.0 (TID 27) (host executor driver)"
    )
    java = "java.io.IOException: Mkdirs failed to create file:/x/plan=1-a"
    sentence = "IOException: Mkdirs failed to create file:/x/plan=1-a"
    failed = f"Job aborted due to stage failure: {task}: {java}\n\tat a.b(C.java:1)\n"
    assert failure_sentence(failed) == sentence
    assert (
        failure_sentence(
            f"An error occurred while calling o1.save.\n: org.apache.spark.SparkException: {failed}"
        )
        == sentence
    )
