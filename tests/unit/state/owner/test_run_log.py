"""What an owner tells of its runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from state.owner.owner_info import OwnerInfo
from state.owner.run_log import MAX_RUNS, MAX_SENTENCE, SPARK, SPOUT, Run, RunLog, sentence

RUN = Run(
    owner=OwnerInfo(host="h", pid=1, since_ms=1), kind=SPARK, session_timeout_ms=1, shards=("a",)
)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("two\n  lines", "two lines"),
        ("zk://ann:pass@zk:2181 is down", "zk://***@zk:2181 is down"),
        ("key AKIAABCDEFGHIJKLMNOP is wrong", "key *** is wrong"),
        ("secret=abc, password=x;", "secret=***, password=***;"),
        ("x" * 900, f"{'x' * (MAX_SENTENCE - 3)}..."),
    ],
)
def test_a_sentence_is_short_and_has_no_secret(said: str, kept: str) -> None:
    assert sentence(said) == kept


def test_a_log_stays_small() -> None:
    """The shards are kept of the newest run alone."""
    log = RunLog()
    for _ in range(3 * MAX_RUNS):
        log = log.begun(RUN)
    assert len(log.runs) == MAX_RUNS
    assert {run.shards for run in log.runs[:-1]} == {()}
    assert log.newest == RUN


def test_a_trigger_is_taken_over_by_the_next_spark_run_only() -> None:
    log = replace(RunLog(), trigger_ms=900_000)
    assert log.begun(RUN).trigger_ms == 900_000
    assert log.begun(replace(RUN, kind=SPOUT)).trigger_ms is None
