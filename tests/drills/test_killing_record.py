"""The real job, whose process dies whenever it gets one of its records: the record is found."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.drills.test_outcomes_at_scale import put, rows_in
from tests.support.spark.job_process import JobProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spark.source import StreamUnderTest

RECORDS, KILLER = 500, 137
MOST_RESTARTS = 30


@pytest.mark.spark
def test_a_job_that_is_killed_by_one_record_dead_letters_it_and_processes_the_others_once(
    stream: StreamUnderTest, tmp_path: Path
) -> None:
    """It is started again each time, as a supervisor would do. The dead letter has the payload, and
    says that the process ended.
    """
    put(stream, RECORDS, lambda _: "good")
    job = {
        "source": stream.fields(),
        "out": str(tmp_path / "out"),
        "dead": str(tmp_path / "dead"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "tracked": True,
        "kills": KILLER,
        "retryLimit": 1,
    }
    process = JobProcess(job, tmp_path)
    for _ in range(MOST_RESTARTS):
        process.start()
        code = process.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL, process.tail()
    assert code == 0, f"the record was not found over {MOST_RESTARTS} restarts"

    rows = rows_in(tmp_path / "out", ["n", "attempt"])
    assert Counter(row["n"] for row in rows) == Counter(n for n in range(RECORDS) if n != KILLER)
    assert {row["attempt"] for row in rows} == {1}
    (letter,) = rows_in(tmp_path / "dead", ["data", "reason", "attempts"])
    assert b'"n": 137,' in letter["data"]
    assert letter["reason"] == "its process ended without an answer 2 times"
    assert letter["attempts"] == 2
    assert stream.checkpoints() == stream.tips()
