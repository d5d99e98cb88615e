"""How a failed query ends: its cause is found in the text that Spark wraps around it, is told, and
is stored with the run of its plan.
"""

from __future__ import annotations

import os
import threading
import traceback
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkRuntimeError

from kinesis_spout.application.run_recorder import amend_newest_run, failure
from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import DataLossError, KinesisError
from spark_job.query_failure import (
    MAX_LENGTH,
    QueryEnds,
    failure_sentence,
    for_spark,
    named_error,
    plans_of,
    reported_failure,
)
from state.errors import PlanClosedError
from state.memory_store import MemoryStateStore
from state.process import process_start, this_process
from state.store.runs import SPARK, ReportedError, Run
from tests.support.outcomes.odd_errors import ODD_ERRORS

TEXT = """[FOREACH_BATCH_USER_FUNCTION_ERROR] ... Current Available Offsets: {"plan": "9-ff"}
ValueError: no rates

=== Streaming Query ===
Identifier: [id = e82d4ec3, runId = f1ad3007]
Current Committed Offsets: {}
Current Available Offsets: {org.a.PythonMicroBatchStream@b5: {"format": 1, "plan": "1-670b"}}

Current State: ACTIVE
"""


def test_the_plan_of_the_available_offsets_is_found() -> None:
    """Not one in the error's own text."""
    assert plans_of(TEXT) == {"1-670b"}
    several = TEXT.replace(
        '{"format": 1, "plan": "1-670b"}',
        '{"format": 2, "plans": {"etl/a": "1-aa", "etl/b": "7-bb"}}',
    )
    assert plans_of(several) == {"1-aa", "7-bb"}
    assert plans_of("ValueError: no rates") == frozenset()
    assert plans_of(TEXT.replace("1-670b", "")) == frozenset()


@pytest.mark.parametrize("is_of_here", [True, False])
def test_a_driver_adds_nothing_to_the_run_of_another_one_on_its_machine(
    *, is_of_here: bool
) -> None:
    """Which has taken over."""
    pid = os.getpid() if is_of_here else os.getppid()
    store = MemoryStateStore()
    owner = replace(this_process(7), pid=pid, process_start=process_start(pid) or "")
    store.ownership.acquire(owner, timeout_s=1)
    run = Run(owner=owner, kind=SPARK, session_timeout_ms=1)
    store.runs.begin(run)
    end = failure(ReportedError("ValueError: no rates"), 9)
    store_of_main = MemoryStateStore(store.backend)
    assert amend_newest_run(store_of_main.runs, lambda log: log.ended(end)) is is_of_here
    newest = store.runs.read()[None].newest
    assert newest == (replace(run, end=end) if is_of_here else run)


def test_a_listener_raises_nothing() -> None:
    """Spark calls it, and logs what it raises at each batch."""
    asked: list[object] = []

    def exception() -> object:
        asked.append(None)
        raise ConnectionError("the Spark session ended")

    query = SimpleNamespace(isActive=False, exception=exception)
    removed: list[object] = []
    manager = SimpleNamespace(get=lambda _: query, removeListener=removed.append)
    ends = QueryEnds(manager, SystemClock())
    event: Any = SimpleNamespace(id="1", runId="2", exception=None)
    ends.onQueryTerminated(event)
    ends.onQueryStarted(event)
    ends.report_the_rest()
    assert len(asked) == 1
    ends.report_the_rest()
    assert len(asked) == 1, "it was told"
    assert removed == [ends]
    ends.onQueryStarted(event)
    ends.onQueryTerminated(event)
    ends.report_the_rest()
    assert len(asked) == 1, "a query that was stopped has no error to report"
    broken = QueryEnds(SimpleNamespace(), SystemClock())
    broken.onQueryStarted(event)
    broken.report_the_rest()


def test_a_driver_that_ends_waits_for_the_report_of_its_error() -> None:
    """The event comes in a thread of py4j, which is a daemon. If Python waits for threads no more,
    as when the event comes late, the end of the process reports what is not stored.
    """
    asked: list[threading.Thread] = []
    is_asked, may_answer = threading.Event(), threading.Event()

    def exception() -> str:
        asked.append(threading.current_thread())
        if len(asked) == 1:
            is_asked.set()
            may_answer.wait(10)
        return ""

    query = SimpleNamespace(isActive=False, exception=exception)
    manager = SimpleNamespace(get=lambda _: query, removeListener=lambda _: None)
    ends = QueryEnds(manager, SystemClock())
    event: Any = SimpleNamespace(id="1", runId="2", exception="KeyError")
    ends.onQueryStarted(event)
    by_py4j = threading.Thread(target=ends.onQueryTerminated, args=(event,), daemon=True)
    by_py4j.start()
    by_py4j.join()
    assert is_asked.wait(10)
    ends.report_the_rest()
    assert asked[1] is threading.current_thread()
    assert not asked[0].daemon
    may_answer.set()
    asked[0].join()


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
        ("", "the query failed without a message"),
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
                "the function passed to tracked(...) raised OSError: [Errno 28] No space left: "
                "'/data'"
            ),
        ),
        (
            KinesisError("no dead letters", "repair the sink"),
            ReportedError("no dead letters", "repair the sink", "KinesisError"),
        ),
        (
            named_error("clicks", DataLossError("shard 1 has expired", "accept it")),
            ReportedError("stream clicks: shard 1 has expired", "accept it", "DataLossError"),
        ),
        (SPARKS, ReportedError("denied", error="AccessDeniedError")),
    ],
)
def test_the_error_that_fails_a_batch_is_told_with_where_it_comes_from(
    error: Exception, told: ReportedError
) -> None:
    """Of a Spark error, the cause in its pages of text."""
    assert reported_failure(error) == told


@pytest.mark.parametrize(
    "error", [*ODD_ERRORS, KeyboardInterrupt()], ids=lambda one: type(one).__name__
)
def test_the_error_of_a_function_is_one_that_spark_can_take(error: BaseException) -> None:
    """And its sentence can be stored. An interrupt, too: py4j's thread would end by it without an
    answer, for which Spark waits for ever.
    """
    taken = for_spark(error, "the function passed to tracked(...)")
    assert isinstance(taken, Exception)
    trace = "".join(traceback.format_exception(taken))
    assert len(trace.encode()) < 1_000_000
    assert type(error).__name__ in trace
    assert reported_failure(taken).says.startswith("the function passed to tracked(...) raised")
    assert reported_failure(error).says.encode()


def test_an_error_that_spark_can_take_is_left_as_it_is() -> None:
    for error in (ValueError("bad"), SPARKS):
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
