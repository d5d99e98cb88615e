"""What can be measured: the Prometheus metrics, and the source's part of Spark's progress
reports.
"""

from __future__ import annotations

import ast
from pathlib import Path

from kinesis_spout.prometheus_exporter import DEFINITIONS, Definition, Kind
from scripts.reference.markdown import code, page, plain, table
from scripts.reference.words import PROGRESS

DRIVER = Path(__file__).resolve().parents[2] / "spark_job" / "driver"


def progress_keys(folder: Path = DRIVER) -> list[str]:
    """The keys of what the driver's `report` methods return, in the order of the code. Read from
    the source: a report of a running query needs a stream.
    """
    keys: list[str] = []
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "report":
                keys.extend(
                    key.value
                    for one in ast.walk(node)
                    if isinstance(one, ast.Dict)
                    for key in one.keys
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                )
    return list(dict.fromkeys(keys))


def metrics_page() -> str:
    return page(
        "## Prometheus",
        table(
            ("name", "type", "labels", "source", "meaning"),
            [
                (
                    code(shown_name(one)),
                    one.kind.value,
                    ", ".join(map(code, one.labels)),
                    ", ".join(one.by),
                    plain(one.meaning),
                )
                for one in DEFINITIONS
            ],
        ),
        "## The Spark source: progress",
        "The progress report of a Spark query contains these figures as JSON in "
        "`sources[n].latestOffset`. `StreamingQueryListener.onQueryProgress` and "
        "`query.lastProgress` return the report.",
        table(("key", "meaning"), [(code(key), PROGRESS.get(key, "")) for key in progress_keys()]),
    )


def shown_name(one: Definition) -> str:
    """The name as a query writes it; of a histogram, the family's."""
    return one.name if one.kind is Kind.HISTOGRAM else one.series[0]
