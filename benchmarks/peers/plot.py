"""The medians of a results file as bars in an SVG. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from benchmarks.peers.report import METRICS, median_of
from benchmarks.peers.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.results import Result

# Scenario, metric, title: two panels in a row.
PANELS = (
    ("backlog-100", "rate", "Backlog, 100 B: records per second"),
    ("backlog-100", "cpu", "Backlog, 100 B: CPU per record, us"),
    ("backlog-1k", "rate", "Backlog, 1 KB: records per second"),
    ("backlog-1k", "cpu", "Backlog, 1 KB: CPU per record, us"),
    ("limits", "rate", "With Kinesis's limits: records per second"),
    ("latency", "p50", "Arrival to visible batch: median, ms"),
)
PANEL_WIDTH, LABEL_WIDTH, BAR_WIDTH = 520, 225, 190
LINE, HEAD, MARGIN = 24, 44, 24
OURS, PEERS = "#1d4ed8", "#94a3b8"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"

Panel = tuple[str, str, list[tuple[str, float, str, str]]]


def svg(results: Sequence[Result]) -> str:
    """A picture of the panels that have results. A light card of its own, which reads the same on a
    light and on a dark page.
    """
    panels = [panel for panel in (_panel(results, *one) for one in PANELS) if panel[2]]
    rows = [panels[n : n + 2] for n in range(0, len(panels), 2)]
    width = 2 * PANEL_WIDTH + MARGIN
    parts, y = [], MARGIN
    for row in rows:
        for column, panel in enumerate(row):
            parts += _drawn(panel, MARGIN + column * PANEL_WIDTH, y)
        y += HEAD + LINE * max(len(panel[2]) for panel in row)
    height = y + MARGIN // 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"',
            f'     aria-labelledby="t" font-family="{FONT}" font-size="14">',
            '  <title id="t">This project beside its peers</title>',
            '  <rect x="1" y="1" rx="12" fill="#f8fafc" stroke="#94a3b8"',
            f'        width="{width - 2}" height="{height - 2}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _panel(results: Sequence[Result], name: str, metric: str, title: str) -> Panel:
    """Title, better direction, and for each reader: its name, figure, text and colour."""
    scenario = next(one for one in SCENARIOS if one.name == name)
    bars = []
    for run in scenario.runs:
        value = median_of(results, name, run.key, metric)
        if value is not None:
            colour = OURS if run.program in {"ours", "spout"} else PEERS
            bars.append((run.title, value, METRICS[metric].text(value), colour))
    return title, "more is better" if metric == "rate" else "less is better", bars


def _drawn(panel: Panel, x: int, y: int) -> list[str]:
    title, better, bars = panel
    most = max(value for _name, value, _text, _colour in bars)
    parts = [
        f'  <text x="{x}" y="{y + 14}" font-weight="600" fill="#0f172a">{escape(title)}',
        f'    <tspan font-weight="400" fill="#475569">({better})</tspan></text>',
    ]
    for n, (name, value, text, colour) in enumerate(bars):
        top = y + 24 + n * LINE
        length = max(1, round(BAR_WIDTH * value / most))
        parts += [
            f'  <text x="{x}" y="{top + 14}" fill="#334155" font-size="13">{escape(name)}</text>',
            f'  <rect x="{x + LABEL_WIDTH}" y="{top + 2}" width="{length}" height="{LINE - 8}"',
            f'        rx="2" fill="{colour}"/>',
            f'  <text x="{x + LABEL_WIDTH + length + 6}" y="{top + 14}" fill="#0f172a"',
            f'        font-size="13">{text}</text>',
        ]
    return parts
