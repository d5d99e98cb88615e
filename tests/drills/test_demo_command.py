"""The demo, as a newcomer runs it: killed, resumed, nothing missing. It also reports a missing
record.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from kinesis_spout.processes import runs
from spark_job.demo.drill import OUTPUT
from spark_job.demo.flights import is_cancelled, read_flights
from tests.support.shell.command_line import run_cli, running_cli
from tests.support.state.zookeeper import wait_until

pytestmark = pytest.mark.spark
RECORDS = 4_000


def demo(folder: Path, *more: str, records: int = RECORDS) -> dict[str, Any]:
    """What a demo in this directory says of itself."""
    arguments = ("demo", *more, "--records", str(records), "--json", "--directory", str(folder))
    ended = run_cli(*arguments, cwd=folder.parent, timeout_s=550)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_killed_and_resumed_job_processes_every_record_and_a_lost_file_is_missed(
    tmp_path: Path,
) -> None:
    """It resumed in the middle, ended at every shard's last record, and has left no process. A
    deleted Parquet file is missed, a copied one counted twice.
    """
    folder = tmp_path / "run"
    found = demo(folder)
    assert found["ok"]
    assert found["killed"]
    assert (found["put"], found["written"], found["missing"]) == (RECORDS, RECORDS, 0)
    assert (found["duplicates"], found["unknown"]) == (0, 0)
    assert len(found["shards"]) == 4
    assert any(entry["stored_at_kill"] for entry in found["shards"].values())
    for entry in found["shards"].values():
        assert entry["stored_at_kill"] < entry["stored"] == entry["put"]
    assert processes_naming(str(folder)) == []
    file = max((folder / OUTPUT).glob("batch=*/*.parquet"), key=lambda path: path.stat().st_size)
    copy = file.with_name(f"copy-{file.name}")
    copy.write_bytes(file.read_bytes())
    assert checked(folder)["duplicates"] > 0
    copy.unlink()
    file.unlink()
    found = checked(folder, code=1)
    assert found["missing"] > 0
    assert found["written"] == RECORDS - found["missing"]


def test_cancelled_flights_end_in_the_dead_letter(tmp_path: Path) -> None:
    """With faults. All others are written."""
    folder = tmp_path / "run"
    found = demo(folder, "--faults")
    cancelled = sum(is_cancelled(flight) for flight in read_flights(RECORDS))
    assert cancelled > 10
    assert found["ok"]
    assert found["killed"]
    assert (found["put"], found["written"], found["missing"]) == (RECORDS, RECORDS - cancelled, 0)
    assert (found["cancelled"], found["dead_lettered"]) == (cancelled, cancelled)


def test_a_demo_needs_only_a_few_flights(tmp_path: Path) -> None:
    """A drill waits for a hundred outcomes before its fault."""
    found = demo(tmp_path / "run", "--no-kill", records=5)
    assert (found["ok"], found["put"], found["written"]) == (True, 5, 5)


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    ended = run_cli("demo", "--directory", str(tmp_path), cwd=tmp_path)
    assert (ended.returncode, ended.stdout.strip()) == (1, ended.stdout.strip())
    assert "is not empty" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_demo_that_fails_keeps_the_log_that_its_error_names(tmp_path: Path) -> None:
    """The job finds no Java. Its directory is a temporary one."""
    ended = run_cli("demo", cwd=tmp_path, JAVA_HOME="/nowhere", TMPDIR=str(tmp_path))
    assert ended.returncode == 1
    _, _, log = ended.stderr.partition("details in ")
    assert "/nowhere/bin/java" in Path(log.strip()).read_text("utf-8")


def test_a_signal_ends_all_it_has_started(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = ("demo", "--records", "2000", "--directory", str(folder))
    with running_cli(*arguments, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        wait_until((folder / "job-1.told").exists, timeout_s=240)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
    assert started
    assert [one.pid for one in started if runs(one)] == []
    assert processes_naming(str(folder)) == []


def checked(folder: Path, *, code: int = 0) -> dict[str, Any]:
    ended = run_cli("demo", "--check", "--json", "--directory", str(folder), cwd=folder)
    assert ended.returncode == code, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def processes_naming(text: str) -> list[str]:
    """Command lines of processes that name this test's directory."""
    lines = [
        " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
    ]
    return [line for line in lines if text in line]
