"""The demo, as a newcomer runs it: killed, resumed, nothing missing. It also reports a missing
record.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kinesis_spout.programs.processes import runs
from spark_job.demo.flights import find_flights, is_cancelled, read_flights
from tests.support.shell.command_line import command_line, environment, run_cli

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
RECORDS = 4_000


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A demo that has run in a directory, and its output as JSON."""
    folder = tmp_path_factory.mktemp("demo")
    ended = run_cli(
        "demo",
        "--records",
        str(RECORDS),
        "--json",
        "--directory",
        str(folder / "run"),
        cwd=folder,
        timeout_s=550,
    )
    assert ended.returncode == 0, ended.stderr
    return folder / "run", json.loads(ended.stdout)


def test_a_killed_and_resumed_job_processes_every_record(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    _, found = finished
    assert found["ok"]
    assert (found["put"], found["processed"], found["missing"]) == (RECORDS, RECORDS, 0)
    assert (found["duplicates"], found["altered"], found["unknown"]) == (0, 0, 0)


def test_it_resumed_in_the_middle_and_ended_at_every_shards_last_record(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    _, found = finished
    assert found["killed"]
    assert len(found["shards"]) == 4
    assert any(found["resumed_from"].values())
    for shard, entry in found["shards"].items():
        assert entry["checkpoint"] == entry["last_sequence_number"]
        assert int(found["resumed_from"].get(shard) or 0) < int(entry["last_sequence_number"])


def test_nothing_that_it_started_is_left(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = finished
    assert processes_naming(str(folder)) == []


def test_a_deleted_parquet_file_is_missed_and_a_copied_one_counted_twice(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = finished
    file = max((folder / "flights").glob("batch=*/*.parquet"), key=lambda path: path.stat().st_size)
    content = file.read_bytes()
    copy = file.with_name(f"copy-{file.name}")
    copy.write_bytes(content)
    assert checked(folder)["duplicates"] > 0
    copy.unlink()
    file.unlink()
    found = checked(folder, code=1)
    assert found["missing"] > 0
    assert found["processed"] == RECORDS - found["missing"]
    file.write_bytes(content)
    assert checked(folder)["missing"] == 0


@pytest.fixture(scope="module")
def with_faults(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A demo with faults that has run in a directory, and its output as JSON."""
    folder = tmp_path_factory.mktemp("faults")
    arguments = (
        "demo",
        "--faults",
        "--records",
        str(RECORDS),
        "--json",
        "--directory",
        str(folder / "run"),
    )
    ended = run_cli(*arguments, cwd=folder, timeout_s=550)
    assert ended.returncode == 0, ended.stderr
    return folder / "run", json.loads(ended.stdout)


def test_cancelled_flights_end_in_the_dead_letter_and_all_others_are_processed(
    with_faults: tuple[Path, dict[str, Any]],
) -> None:
    folder, found = with_faults
    cancelled = sum(is_cancelled(flight) for flight in read_flights(find_flights(), RECORDS))
    assert cancelled > 10
    assert found["ok"]
    assert found["killed"]
    assert (found["put"], found["processed"], found["missing"]) == (RECORDS, RECORDS - cancelled, 0)
    assert (found["cancelled"], found["failed"], found["dead_lettered"]) == (
        cancelled,
        cancelled,
        cancelled,
    )
    for entry in found["shards"].values():
        assert entry["checkpoint"] == entry["last_sequence_number"]
    assert checked(folder)["dead_lettered"] == cancelled


def test_a_deleted_dead_letter_is_missed(with_faults: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = with_faults
    file = max(
        (folder / "dead-letters").glob("plan=*/*.parquet"), key=lambda path: path.stat().st_size
    )
    content = file.read_bytes()
    file.unlink()
    found = checked(folder, code=1)
    assert found["dead_lettered"] < found["cancelled"]
    file.write_bytes(content)
    assert checked(folder)["ok"]


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    ended = run_cli("demo", "--directory", str(tmp_path), cwd=tmp_path)
    assert (ended.returncode, ended.stdout.strip()) == (1, ended.stdout.strip())
    assert "is not empty" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_it_has_started(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder = tmp_path / "run"
    arguments = command_line("demo", "--records", "2000", "--directory", str(folder))
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("Spark job"):
                    break
            started = psutil.Process(process.pid).children(recursive=True)
            os.kill(process.pid, number)
            assert process.wait(timeout=60) == code
        finally:
            process.kill()
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
