"""The report of `make bench-peers`: medians, ratios round by round, bars, what was not measured."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.peers.plot import svg
from benchmarks.peers.report import (
    as_json,
    markdown,
    verdict,
)
from benchmarks.peers.scenarios import SCENARIOS, Bar

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


def test_the_report_says_of_each_bar_whether_it_is_met_and_its_plot_is_xml() -> None:
    kinds = {"JVM": 0.0003, "workers": 0.0002, "planning": 0.0}
    results = [result("ours", 1, cpu_s_of=kinds, others_cores=0.25), result("awslabs", 1)]
    text = markdown(results)
    assert "| 1,000 | 0.25 | 500.00 (JVM 0.30, workers 0.20) | 100 |" in text
    line = next(line for line in text.splitlines() if line.startswith("| backlog-100: records/s"))
    assert line.endswith("| 1 (1 to 1) | at least 1.5 | **not met** |")
    assert as_json(results)["scenarios"]["backlog-100"]["ours"]["rate"] == 1000
    ET.fromstring(svg(results))  # noqa: S314  # our own text
