"""A Spark worker that reads imports what reading needs."""

from __future__ import annotations

import json
import subprocess
import sys

import spark_job
from tests.architecture.source_tree import ROOT

SCRIPT = """
import json, sys
import spark_job.data_source
print(json.dumps(sorted(sys.modules)))
"""


def test_the_data_source_imports_neither_planning_nor_tracking() -> None:
    """A worker unpickles the reader from its module. The rest of the package took it a third more
    time, in each worker process.
    """
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    imported = json.loads(done.stdout)
    rooms = ("driver", "tracking", "dead_letter", "acker", "sink", "kinesis_source", "preflight")
    assert "spark_job.executor.task_reader" in imported
    assert [
        name
        for name in imported
        if name.startswith(tuple(f"spark_job.{room}" for room in rooms)) or name == "pandas"
    ] == []


def test_every_public_name_is_found() -> None:
    """They are imported at their first use."""
    for name in spark_job.__all__:
        assert getattr(spark_job, name).__name__ == name
