"""What is said of a session and of the time that reads take."""

from __future__ import annotations

import pytest

from kinesis_spout.doctor.finding import Verdict
from kinesis_spout.doctor.zookeeper import latency_finding, session_finding


@pytest.mark.parametrize(
    ("granted_s", "verdict", "said"),
    [
        (10.0, Verdict.OK, "ends 10 s after a crash"),
        (4.0, Verdict.WARNING, "grants 4 s of the 10 s asked for"),
    ],
)
def test_a_short_session_is_a_warning(granted_s: float, verdict: Verdict, said: str) -> None:
    found = session_finding(granted_s)
    assert found.verdict is verdict
    assert said in found.sentence


@pytest.mark.parametrize(
    ("times_ms", "verdict", "said"),
    [
        ([1.0, 900.0, 2.0], Verdict.OK, "a read takes 2.0 ms; the slowest of 3, 900.0 ms"),
        ([150.0, 900.0, 120.0], Verdict.WARNING, "run ZooKeeper nearer"),
    ],
)
def test_slow_reads_are_a_warning(times_ms: list[float], verdict: Verdict, said: str) -> None:
    """By their median: a single pause is no fault."""
    found = latency_finding(times_ms)
    assert found.verdict is verdict
    assert said in found.sentence
