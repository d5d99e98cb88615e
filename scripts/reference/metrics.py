"""What can be measured: the spout's Prometheus metrics, and the source's part of Spark's progress
reports.
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kinesis_spout.config import StreamRef
from kinesis_spout.prometheus_exporter import SpoutCollector
from kinesis_spout.spout.metrics import ShardCounts, ShardMetrics, SpoutMetrics
from scripts.reference.markdown import code, page, plain, table
from scripts.reference.words import PROGRESS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from kinesis_spout.spout import KinesisSpout

DRIVER = Path(__file__).resolve().parents[2] / "spark_job" / "driver"


def metrics() -> list[Metric]:
    """What the exporter gives at a scrape of a spout with one shard."""
    shard = ShardMetrics(counts=ShardCounts(), pending=0, queued=0, lag_ms=0)
    spout = SimpleNamespace(
        metrics=lambda: SpoutMetrics(
            total=shard,
            shards={"shardId-000000000000": shard},
            failing_s={"fetch": 0.0},
            outages={"fetch": 0},
        ),
        config=SimpleNamespace(stream_ref=StreamRef("stream")),
    )
    return list(SpoutCollector(cast("KinesisSpout", spout)).collect())


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
    return keys


def metrics_page() -> str:
    return page(
        "## The spout: Prometheus",
        table(
            ("name", "type", "labels", "meaning"),
            [
                (code(_name(one)), one.type, _labels(one), plain(one.documentation))
                for one in metrics()
            ],
        ),
        "## The Spark source: progress",
        "Spark's progress report of a query holds these in `sources[n].latestOffset`, as JSON. "
        "`StreamingQueryListener.onQueryProgress` and `query.lastProgress` give the report.",
        table(("key", "meaning"), [(code(key), PROGRESS.get(key, "")) for key in progress_keys()]),
    )


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _labels(metric: Metric) -> str:
    names: dict[str, Any] = {name: None for one in metric.samples for name in one.labels}
    return ", ".join(code(name) for name in names)
