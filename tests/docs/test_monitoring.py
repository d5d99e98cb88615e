"""The alert rules and the dashboard name only metrics and labels that the exporters have."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from typing import TYPE_CHECKING, Any

import yaml

from kinesis_spout.prometheus_exporter import DEFINITIONS
from scripts.reference.commands import commands
from tests.support.shell.pages import ROOT
from tests.support.shell.tools import PROMTOOL

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "docs" / "monitoring"
RULES = FOLDER / "kinesis-spout.rules.yml"
RULE_TESTS = FOLDER / "kinesis-spout.rules.test.yml"
DASHBOARD = FOLDER / "kinesis-spout.dashboard.json"
LABELS = {name: {*one.labels, "le"} for one in DEFINITIONS for name in one.series}
METRIC = re.compile(r"\b(kinesis_spout_\w+|up)\b(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
BY = re.compile(r"\b(?:by|on) \(([\w, ]+)\)")
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$application": ".*", "$stream": ".*"}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Every query, by where it stands, as Prometheus gets it."""
    found = {rule["alert"]: rule["expr"] for rule in alerts()}
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


def unknown_names(expression: str) -> set[str]:
    """Metrics that no exporter has, and labels that a metric of the expression does not have."""
    used = METRIC.findall(expression)
    unknown = {name for name, _ in used if name not in LABELS and name != "up"}
    known = [(name, labels) for name, labels in used if name in LABELS]
    for name, labels in known:
        unknown |= set(LABEL.findall(labels)) - LABELS[name]
        for group in BY.findall(expression):
            unknown |= set(group.replace(" ", "").split(",")) - LABELS[name]
    return unknown


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROMTOOL.path(), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_every_expression_names_what_there_is() -> None:
    """A metric that no exporter has, as one without its `_total`, and a label that it lacks."""
    wrong = 'max by (shard) (kinesis_spout_stream_lag_seconds{prat="x"}) > kinesis_spout_acked'
    assert unknown_names(wrong) == {"shard", "prat", "kinesis_spout_acked"}
    assert len(expressions()) > 30
    assert {where: unknown_names(one) for where, one in expressions().items()} == {
        where: set() for where in expressions()
    }


def test_every_alert_says_what_is_wrong_and_what_to_run() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names) > 5
    for rule in alerts():
        assert rule["labels"] == {"severity": rule["labels"]["severity"]}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert METRIC.search(rule["expr"]), rule["alert"]
        used = re.findall(r"kinesis-spout ([a-z]+)", rule["annotations"]["description"])
        assert "explain" in used, rule["alert"]
        assert set(used) <= set(commands()), rule["alert"]
        options = re.findall(r"--[a-z-]+", rule["annotations"]["description"])
        explain = {name for one in commands()["explain"].params for name in one.opts}
        assert set(options) <= explain, rule["alert"]


def test_a_template_uses_only_labels_that_its_expression_leaves() -> None:
    for rule in alerts():
        kept = {name for group in BY.findall(rule["expr"]) for name in group.split(", ")}
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert used <= (kept or {"instance", "job"}), rule["alert"]


def test_every_alert_has_a_case_in_the_tests_of_the_rules() -> None:
    tested = RULE_TESTS.read_text("utf-8")
    assert [rule["alert"] for rule in alerts() if rule["alert"] not in tested] == []


def test_the_dashboard_can_be_imported() -> None:
    """Panels have an id of their own and do not overlap; every variable that is used is there."""
    found = dashboard()
    assert found["schemaVersion"] >= 39
    assert "id" not in found  # a new one is given at the import
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in found["panels"]]
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []
    assert all(place["x"] + place["w"] <= 24 for place in places)
    variables = {one["name"] for one in found["templating"]["list"]}
    assert variables == {"datasource", "application", "stream"}
    text = DASHBOARD.read_text("utf-8")
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__range", "__all"}
    assert used == variables


def test_the_table_of_alerts_has_every_alert() -> None:
    page = (ROOT / "docs" / "guides" / "metrics.md").read_text("utf-8")
    assert set(re.findall(r"`(KinesisSpout\w+)`", page)) == {rule["alert"] for rule in alerts()}


def test_every_query_of_the_dashboard_is_of_the_chosen_application_and_stream() -> None:
    for panel in panels():
        for target in panel["targets"]:
            selectors = [labels for _, labels in METRIC.findall(target["expr"])]
            assert selectors
            for labels in selectors:
                assert 'application=~"$application", stream=~"$stream"' in labels, panel["title"]


def test_the_rules_pass_their_own_tests() -> None:
    for arguments in (("check", "rules", RULES), ("test", "rules", RULE_TESTS)):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": f"expression:{number}", "expr": one}
        for number, one in enumerate(expressions().values())
    ]
    path = tmp_path / "expressions.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
