"""What an owner tells of its runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from state.store.ownership import OwnerInfo
from state.store.runs import (
    MAX_RUNS,
    MAX_SENTENCE,
    SPARK,
    SPOUT,
    Run,
    RunLog,
    Throttle,
    sentence,
)

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


def test_a_log_stays_small_and_tells_of_the_newest_run() -> None:
    """The shards and what was throttled are of that run alone. The trigger is taken over by the
    next Spark run.
    """
    log = RunLog()
    for _ in range(3 * MAX_RUNS):
        log = replace(log, throttled={"a": Throttle(count=1, last_ms=1)}, trigger_ms=9).begun(RUN)
    assert len(log.runs) == MAX_RUNS
    assert {run.shards for run in log.runs[:-1]} == {()}
    assert (log.newest, log.throttled, log.trigger_ms) == (RUN, {}, 9)
    assert log.begun(replace(RUN, kind=SPOUT)).trigger_ms is None
