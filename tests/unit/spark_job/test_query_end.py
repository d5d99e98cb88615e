"""Which plan a failed query's exception names, and that its listener raises nothing."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kinesis_spout.application.run_recorder import amend_newest_run, failure
from kinesis_spout.clock import SystemClock
from spark_job.query_end import QueryEnds, plans_of
from state.memory_store import MemoryStateStore
from state.process import process_start, this_process
from state.store.runs import SPARK, ReportedError, Run

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
        raise ConnectionError("the session has ended")

    query = SimpleNamespace(isActive=False, exception=exception)
    ends = QueryEnds(SimpleNamespace(get=lambda _: query), SystemClock())
    event: Any = SimpleNamespace(id="1", runId="2", exception=None)
    ends.onQueryTerminated(event)
    ends.onQueryStarted(event)
    ends.report_the_rest()
    assert len(asked) == 1
    ends.report_the_rest()
    assert len(asked) == 1, "it was told"
    broken = QueryEnds(SimpleNamespace(), SystemClock())
    broken.onQueryStarted(event)
    broken.report_the_rest()
