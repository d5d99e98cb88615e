"""How `make bench-peers` measures a reader, and what it ends."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.peers.commands import ROOT
from benchmarks.peers.measure import ReaderFailedError, kind_of, run_reader
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from pathlib import Path

NO_SERVER: dict[str, Any] = {"cpu_s": 0.0, "bytes": 0, "calls": {}, "debt_s": 0.0}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_reader_is_measured_with_its_children_the_ended_ones_included(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "from benchmarks.peers.readers import marks\n"
        "marks.begin()\n"
        "busy = 'import time\\nwhile time.process_time() < 0.3: pass'\n"
        "subprocess.run([sys.executable, '-c', busy], check=True)\n"
        "print('a line for the log', flush=True)\n"
        "marks.end(42, p50_ms=7)\n"
    )
    found = run_reader(
        [sys.executable, "-c", code],
        environment={"PYTHONPATH": str(ROOT)},
        server=lambda: NO_SERVER,
        log=tmp_path / "log",
    )
    assert (found["records"], found["p50_ms"]) == (42, 7)
    assert found["cpu_s"] >= 0.25  # of 0.3; /proc counts in ticks
    assert found["cpu_s_of"]["driver"] == found["cpu_s"]
    assert (tmp_path / "log").read_text() == "a line for the log\n"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("/usr/lib/jvm/bin/java -cp conf org.apache.spark.deploy.SparkSubmit shell", "JVM"),
        ("java -Xmx1g org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg", "ZooKeeper"),
        ("python -m pyspark.daemon pyspark.worker", "workers"),
        ("python -m pyspark.sql.streaming.python_streaming_source_runner", "planning"),
        ("python -m benchmarks.peers.readers.spark ours backlog", "driver"),
        ("", "driver"),  # it has just ended
    ],
)
def test_a_process_is_of_the_kind_that_its_command_names(command: str, kind: str) -> None:
    assert kind_of(command.replace(" ", "\0").encode()) == kind


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_failed_reader_leaves_behind_is_ended(tmp_path: Path) -> None:
    left = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(left)!r}).write_text(str(child.pid))\n"
        "sys.exit(3)\n"
    )
    with pytest.raises(ReaderFailedError, match="exit code 3"):
        run_reader(
            [sys.executable, "-c", code],
            environment={},
            server=lambda: NO_SERVER,
            log=tmp_path / "log",
        )
    # A signal is delivered when the process runs next; init may leave it as a zombie.
    command = ["ps", "-o", "stat=", "-p", left.read_text()]
    wait_until(
        lambda: (
            subprocess.run(command, capture_output=True, text=True, check=False).stdout[:1]
            in {"", "Z"}
        )
    )
