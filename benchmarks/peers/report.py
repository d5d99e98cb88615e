"""Medians, ratios and bars of a results file, as Markdown and as JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.peers.measure import KINDS
from benchmarks.peers.scenarios import SCENARIOS, Bar, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.peers.results import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure of a run; None if the run has none. `digits`: after the point."""

    title: str
    of: Callable[[Result], float | None]
    digits: int = 0

    def text(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


def _per_record(result: Result, name: str) -> float | None:
    return 1e6 * result[name] / result["records"] if name in result else None


METRICS: Mapping[str, Metric] = {
    "rate": Metric(title="records/s", of=lambda run: run["records"] / run["wall_s"]),
    "cpu": Metric(title="CPU, us a record", of=lambda run: _per_record(run, "cpu_s"), digits=2),
    "others": Metric(
        title="cores that others took", of=lambda run: run.get("others_cores"), digits=2
    ),
    "memory": Metric(title="peak memory, MB", of=lambda run: run.get("peak_mb")),
    "time": Metric(title="us a record", of=lambda run: _per_record(run, "wall_s"), digits=2),
    "share": Metric(
        title="share of what the limits allow", of=lambda run: run.get("share"), digits=2
    ),
    "p50": Metric(title="median, ms", of=lambda run: run.get("p50_ms")),
    "p99": Metric(title="99 of 100, ms", of=lambda run: run.get("p99_ms")),
    "calls": Metric(
        title="calls a second", of=lambda run: sum(run["calls"].values()) / run["wall_s"], digits=1
    ),
    "cores": Metric(title="cores", of=lambda run: run["cpu_s"] / run["wall_s"], digits=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Of the rounds."""

    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A bar and what was found. `found` is None when one of the two was not measured."""

    scenario: Scenario
    bar: Bar
    found: Spread | None

    @property
    def is_met(self) -> bool | None:
        if self.found is None:
            return None
        if self.bar.at_least is not None:
            return self.found.median >= self.bar.at_least
        assert self.bar.at_most is not None
        return self.found.median <= self.bar.at_most


def spread(values: Iterable[float]) -> Spread | None:
    found = sorted(values)
    return Spread(median=median(found), least=found[0], most=found[-1]) if found else None


def by_round(results: Sequence[Result], scenario: str, key: str, metric: str) -> dict[int, float]:
    """The metric of a reader in each round that has it."""
    found = {
        result["round"]: METRICS[metric].of(result)
        for result in results
        if (result["scenario"], result["key"]) == (scenario, key)
    }
    return {number: value for number, value in found.items() if value is not None}


def median_of(results: Sequence[Result], scenario: str, key: str, metric: str) -> float | None:
    found = spread(by_round(results, scenario, key, metric).values())
    return None if found is None else found.median


def has_unseen(results: Sequence[Result], scenario: str, key: str) -> bool:
    """Whether records were not visible when the run ended, so that their latency is a least one."""
    return any(
        result.get("unseen", 0) > 0
        for result in results
        if (result["scenario"], result["key"]) == (scenario, key)
    )


def verdict(results: Sequence[Result], scenario: Scenario, bar: Bar) -> Verdict:
    """Ratios are made round by round, so that a slow minute of the machine counts for both."""
    ours = by_round(results, scenario.name, bar.ours, bar.metric)
    if bar.theirs is None:
        return Verdict(scenario=scenario, bar=bar, found=spread(ours.values()))
    theirs = by_round(results, scenario.name, bar.theirs, bar.metric)
    ratios = [ours[number] / theirs[number] for number in ours.keys() & theirs.keys()]
    return Verdict(scenario=scenario, bar=bar, found=spread(ratios))


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    return [verdict(results, scenario, bar) for scenario in SCENARIOS for bar in scenario.bars]


def markdown(results: Sequence[Result]) -> str:
    """A table for each scenario that has results, and the table of the bars."""
    tables = [_table(results, scenario) for scenario in SCENARIOS]
    return "\n".join(
        [_measured_on(results), *(table for table in tables if table), _bars(verdicts(results))]
    )


def _measured_on(results: Sequence[Result]) -> str:
    commits = ", ".join(sorted({f"`{result['commit']}`" for result in results}))
    cores = ", ".join(sorted({str(result["cores"]) for result in results}))
    rounds = max((result["round"] for result in results), default=0)
    others = max((result.get("others_cores", 0.0) for result in results), default=0.0)
    return (
        f"Commit {commits}; {cores} cores, of which others took {others:.2g} in the worst run; "
        f"medians of up to {rounds} alternated rounds.\n"
    )


def _table(results: Sequence[Result], scenario: Scenario) -> str:
    if not any(result["scenario"] == scenario.name for result in results):
        return ""
    metrics = [METRICS[name] for name in scenario.metrics]
    lines = [
        f"| {scenario.title} | {' | '.join(metric.title for metric in metrics)} |",
        "| --- |" + " --- |" * len(metrics),
    ]
    for run in scenario.runs:
        cells = []
        for name in scenario.metrics:
            value = median_of(results, scenario.name, run.key, name)
            cells.append("not measured" if value is None else METRICS[name].text(value))
            if name == "cpu":
                cells[-1] += _parts(results, scenario.name, run.key)
            if name in {"p50", "p99"} and has_unseen(results, scenario.name, run.key):
                cells[-1] = f"more than {cells[-1]}"
        lines.append(f"| {run.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _parts(results: Sequence[Result], scenario: str, key: str) -> str:
    """The median CPU of each kind of process; nothing where one kind took all of it."""
    of_kind: dict[str, list[float]] = {}
    for result in results:
        if (result["scenario"], result["key"]) == (scenario, key):
            for kind, spent in result.get("cpu_s_of", {}).items():
                of_kind.setdefault(kind, []).append(1e6 * spent / result["records"])
    found = {kind: median(of_kind[kind]) for kind in KINDS if any(of_kind.get(kind, ()))}
    if len(found) < 2:
        return ""
    return f" ({', '.join(f'{kind} {spent:.2f}' for kind, spent in found.items())})"


def _bars(found: Sequence[Verdict]) -> str:
    lines = [
        "| bar | found (least to most of the rounds) | asked | |",
        "| --- | --- | --- | --- |",
    ]
    for one in found:
        said = {True: "met", False: "**not met**", None: ""}[one.is_met]
        lines.append(f"| {title(one)} | {_found(one.found)} | {asked(one.bar)} | {said} |")
    return "\n".join(lines) + "\n"


def title(one: Verdict) -> str:
    titles = {run.key: run.title for run in one.scenario.runs}
    beside = "" if one.bar.theirs is None else f" / {titles[one.bar.theirs]}"
    metric = METRICS[one.bar.metric].title
    return f"{one.scenario.name}: {metric}, {titles[one.bar.ours]}{beside}"


def asked(bar: Bar) -> str:
    if bar.at_least is not None:
        return f"at least {bar.at_least:g}"
    return f"at most {bar.at_most:g}"


def _found(found: Spread | None) -> str:
    if found is None:
        return "not measured"
    return f"{found.median:.3g} ({found.least:.3g} to {found.most:.3g})"


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """The medians of each reader, and the bars."""
    measured = {(result["scenario"], result["key"]) for result in results}
    return {
        "scenarios": {
            scenario.name: {
                run.key: {
                    name: median_of(results, scenario.name, run.key, name)
                    for name in scenario.metrics
                }
                for run in scenario.runs
                if (scenario.name, run.key) in measured
            }
            for scenario in SCENARIOS
        },
        "bars": [
            {
                "bar": title(one),
                "asked": asked(one.bar),
                "median": one.found and one.found.median,
                "least": one.found and one.found.least,
                "most": one.found and one.found.most,
                "met": one.is_met,
            }
            for one in verdicts(results)
        ],
    }
