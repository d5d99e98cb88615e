"""What executors have seen becomes one line for each thing."""

from __future__ import annotations

import json
import subprocess
import sys
from inspect import getsource
from typing import TYPE_CHECKING, Any

from kinesis_spout.doctor.examination import SeenExecutor, executor_findings
from kinesis_spout.doctor.findings import Finding, Verdict, failed, ok
from spark_job.commands.doctor_job import probe

if TYPE_CHECKING:
    from pathlib import Path


def seen(host: str = "a", *findings: Finding, **changes: Any) -> SeenExecutor:
    given: dict[str, Any] = {"host": host, "worker": 1, "python": "3.11.7", "version": "0.1.0"}
    return SeenExecutor(**(given | {"findings": findings} | changes))


def found(*all_seen: SeenExecutor) -> list[Finding]:
    return list(executor_findings(all_seen, python="3.11.2", version="0.1.0"))


def test_another_python_is_a_failure() -> None:
    first = found(seen("a"), seen("b", python="3.9.1"))[0]
    assert first.verdict is Verdict.FAILED
    assert "b has Python 3.9.1, but this process has 3.11.2; set PYSPARK_PYTHON" in first.sentence


def test_a_missing_or_another_package_is_a_failure() -> None:
    error = "ModuleNotFoundError: No module named 'kinesis_spout'"
    one, other = found(seen("a", version=None, error=error), seen("b", version="0.0.9"))[1:]
    assert one.verdict is other.verdict is Verdict.FAILED
    assert "cannot be imported on a (ModuleNotFoundError" in one.sentence
    assert "version 0.0.9 on b, but 0.1.0 here" in other.sentence


def test_what_is_wrong_somewhere_is_said_with_its_hosts() -> None:
    """Once for all hosts that say the same."""
    wrong = failed("no answer; open the firewall", "endpoint", unreachable=True)
    right = ok("answers", "endpoint")
    assert found(seen("a", right), seen("b", wrong), seen("c", wrong))[2:] == [
        failed("on b, c: no answer; open the firewall", "endpoint", unreachable=True)
    ]
    assert found(seen("a", right), seen("b", right))[2:] == [right]


def test_the_probe_runs_where_our_package_is_missing(tmp_path: Path) -> None:
    """It is sent to executors by value, so it must import nothing of ours to begin with."""
    header = "from __future__ import annotations\nimport json, os, platform, socket\n"
    program = f"{header}{getsource(probe)}print(json.dumps(probe(None)))\n"
    isolated = [sys.executable, "-I", "-S", "-c", program]  # neither PYTHONPATH nor site-packages
    said = subprocess.run(isolated, cwd=tmp_path, capture_output=True, text=True, check=True)
    answer = json.loads(said.stdout)
    assert answer["error"] == "ModuleNotFoundError: No module named 'kinesis_spout'"
    assert "version" not in answer
