"""The report of `make bench-peers`: medians, ratios round by round, bars, what was not measured."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.peers.plot import svg
from benchmarks.peers.report import (
    as_json,
    by_round,
    markdown,
    median_of,
    verdict,
    verdicts,
)
from benchmarks.peers.scenarios import SCENARIOS, Bar, Run, Scenario, Stream

RATE = Bar(metric="rate", ours="ours", theirs="awslabs", at_least=1.5)
BACKLOG = next(one for one in SCENARIOS if one.name == "backlog-100")


def result(key: str, number: int, **fields: Any) -> dict[str, Any]:
    ran = {"records": 1000, "wall_s": 1.0, "cpu_s": 0.5, "peak_mb": 100, "calls": {"GetRecords": 1}}
    where = {"scenario": "backlog-100", "key": key, "round": number, "commit": "abc", "cores": 2}
    return where | ran | fields


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    # Ratios 4, 1 and 2. The ratio of the two medians would be 3.
    ours = [result("ours", n, wall_s=1 / rate) for n, rate in ((1, 4.0), (2, 3.0), (3, 2.0))]
    theirs = [result("awslabs", n, wall_s=1 / rate) for n, rate in ((1, 1.0), (2, 3.0), (3, 1.0))]
    found = verdict(ours + theirs, BACKLOG, RATE).found
    assert found is not None
    assert (found.median, found.least, found.most) == pytest.approx((2, 1, 4))


def test_a_round_that_only_one_of_the_two_has_does_not_count() -> None:
    results = [result("ours", 1), result("ours", 2, wall_s=0.1), result("awslabs", 1)]
    found = verdict(results, BACKLOG, RATE).found
    assert found is not None
    assert (found.least, found.most) == (1, 1)


@pytest.mark.parametrize(
    ("bar", "is_met"),
    [
        (Bar(metric="rate", ours="ours", theirs="awslabs", at_least=2), True),
        (Bar(metric="rate", ours="ours", theirs="awslabs", at_least=2.01), False),
        (Bar(metric="cpu", ours="ours", theirs="awslabs", at_most=0.5), True),
        (Bar(metric="cpu", ours="ours", theirs="awslabs", at_most=0.49), False),
        (Bar(metric="cpu", ours="ours", at_most=250), True),
        (Bar(metric="cpu", ours="ours", at_most=249), False),
        (Bar(metric="rate", ours="ours", theirs="kcl", at_least=1), None),
        (Bar(metric="p50", ours="ours", at_most=1), None),
    ],
)
def test_a_bar_is_met_from_its_bound_on_and_undecided_without_both_figures(
    bar: Bar,
    is_met: bool | None,  # noqa: FBT001  # a parameter of the test
) -> None:
    results = [result("ours", 1, wall_s=0.5, cpu_s=0.25), result("awslabs", 1)]
    assert verdict(results, BACKLOG, bar).is_met is is_met


def test_every_bar_has_one_bound_and_names_readers_of_its_scenario() -> None:
    for one in verdicts([]):
        keys = {run.key for run in one.scenario.runs}
        assert (one.bar.at_least is None) != (one.bar.at_most is None)
        assert {one.bar.ours, one.bar.theirs or one.bar.ours} <= keys


def test_a_missing_figure_is_said_to_be_missing() -> None:
    # A run of another benchmark has no CPU time; the KCL has not run at all.
    no_cpu = {name: value for name, value in result("ours", 1).items() if name != "cpu_s"}
    assert by_round([no_cpu], "backlog-100", "ours", "cpu") == {}
    assert median_of([no_cpu], "backlog-100", "kcl", "rate") is None
    text = markdown([no_cpu])
    assert "| this source, JSON | 1,000 | not measured | 100 |" in text
    assert "| KCL 3.5.1 | not measured | not measured | not measured |" in text


def test_the_latency_of_records_that_were_never_seen_is_a_lower_bound() -> None:
    ran = {"scenario": "latency", "p50_ms": 60_000, "p99_ms": 60_000}
    text = markdown([result("awslabs", 1, **ran, unseen=800)])
    assert "| awslabs' connector, defaults | more than 60,000 | more than 60,000 |" in text
    assert "more than" not in markdown([result("awslabs", 1, **ran, unseen=0)])


def test_the_json_has_medians_and_bars() -> None:
    runs = [result("ours", n, wall_s=wall_s) for n, wall_s in ((1, 1.0), (2, 0.5), (3, 2.0))]
    found = json.loads(json.dumps(as_json(runs)))
    assert found["scenarios"]["backlog-100"] == {
        "ours": {"rate": 1000.0, "cpu": 500.0, "memory": 100}
    }
    assert len(found["bars"]) == sum(len(one.bars) for one in SCENARIOS)
    assert all(bar["met"] is None for bar in found["bars"] if "/" in bar["bar"])


def test_the_plot_is_xml_and_has_each_measured_reader() -> None:
    text = svg([result("ours", 1), result("awslabs", 1, wall_s=0.5)])
    ET.fromstring(text)  # noqa: S314  # our own text
    assert "this source, JSON" in text
    assert "awslabs" in text
    assert "KCL" not in text
    assert ">2,000</text>" in text


def test_a_scenario_has_the_streams_that_its_readers_read() -> None:
    def lacks(one: Scenario, run: Run) -> bool:
        return run.program != "outcomes" and run.stream not in one.streams

    assert not [(one.name, run.key) for one in SCENARIOS for run in one.runs if lacks(one, run)]
    whole: list[Stream] = [stream for one in SCENARIOS for stream in one.streams.values()]
    assert all(stream.records % stream.shards == 0 for stream in whole)
