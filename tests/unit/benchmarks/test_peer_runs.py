"""How `make bench-peers` chooses, starts, measures and remembers runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.peers.__main__ import chosen
from benchmarks.peers.commands import ROOT, command, make_ready
from benchmarks.peers.found_peers import FoundPeers, MissingPeerError
from benchmarks.peers.measure import ReaderFailedError, Sight, figures, run_reader, ticks_in
from benchmarks.peers.results import append, identity, load
from benchmarks.peers.runner import share_of_limits
from benchmarks.peers.scenarios import SCENARIOS, Stream

if TYPE_CHECKING:
    from pathlib import Path

NO_SERVER: dict[str, Any] = {"cpu_s": 0.0, "bytes": 0, "calls": {}, "debt_s": 0.0}


def sight(at_s: float, cpu_s: float, machine_cpu_s: float, server: dict[str, Any]) -> Sight:
    return Sight(
        at_s=at_s,
        cpu_s=cpu_s,
        machine_cpu_s=machine_cpu_s,
        server=NO_SERVER | server,
        fields={"records": 5},
    )


def test_figures_are_the_differences_between_the_marks() -> None:
    calls = {"GetRecords": 2, "ListShards": 1}
    begin = sight(10, 3, 100, {"cpu_s": 1.0, "bytes": 1_000_000, "calls": calls})
    calls = {"GetRecords": 9, "ListShards": 1}
    end = sight(12, 6, 106, {"cpu_s": 1.5, "bytes": 3_000_000, "calls": calls})
    assert figures(begin, end) == {
        "wall_s": 2,
        "cpu_s": 3,
        "server_cpu_s": 0.5,
        "others_cores": 1.25,
        "received_mb": 2.0,
        "calls": {"GetRecords": 7},
        "debt_s": 0.0,
        "records": 5,
    }


def test_cpu_is_that_of_a_process_and_of_its_ended_children() -> None:
    # The name of a command may have spaces and parentheses.
    stat = "7 (a) b (c) S 1 7 7 0 -1 0 10 20 0 0 100 20 3 4 20 0 1 0 99 0 0"
    assert ticks_in(stat) == 127


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
    assert (tmp_path / "log").read_text() == "a line for the log\n"


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
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", left.read_text()], capture_output=True, text=True, check=False
    )
    assert state.stdout.strip()[:1] in {"", "Z"}


def test_results_are_appended_and_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    first = {"scenario": "idle", "key": "ours", "round": 1}
    second = {"scenario": "idle", "key": "ours", "round": 2}
    assert load(file) == []
    append(file, first)
    with file.open("a") as out:
        out.write('{"scenario": "idle", "key": "aws')
    assert load(file) == [first]
    append(file, second)
    assert load(file) == [first, second]
    assert identity(second) == ("idle", "ours", 2)


def test_scenarios_and_readers_are_chosen_by_name() -> None:
    assert [one.name for one in chosen(None, None)] == [one.name for one in SCENARIOS]
    (one,) = chosen("limits", "ours")
    assert (one.name, [run.key for run in one.runs]) == ("limits", ["ours"])


def test_a_source_at_another_commit_is_refused(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "x"], check=True)
    (awslabs,) = chosen("idle", "awslabs")[0].runs
    with pytest.raises(MissingPeerError, match="check out 0f4c005, or give a jar of it"):
        make_ready(awslabs, FoundPeers(tmp_path / "home", None, tmp_path))


def test_both_spark_sources_run_in_the_same_script(tmp_path: Path) -> None:
    jar = tmp_path / "connector.jar"
    jar.touch()
    scenario = next(one for one in SCENARIOS if one.name == "backlog-100")
    peers = FoundPeers(tmp_path, jar, None)
    ours, theirs = (
        command(run, scenario, peers, endpoint="http://x", dynamo="", directory=tmp_path)
        for run in scenario.runs
        if run.key in {"ours", "awslabs"}
    )
    assert "--option=readsPerSecond=1000" in ours
    assert str(jar) in theirs
    same = [word for word in ours if word in theirs]
    assert same[:3] == [sys.executable, "-m", "benchmarks.peers.readers.spark"]
    assert "measured:16000000" in same


def test_the_share_of_the_limits_counts_what_the_last_pages_were_ahead() -> None:
    stream = Stream(records=81_920, record_bytes=1013, shards=8)
    # 80 MiB of data and keys over 8 shards are five seconds' worth.
    assert share_of_limits({"records": 81_920, "wall_s": 5.0, "debt_s": 0.0}, stream) == 1
    assert share_of_limits({"records": 81_920, "wall_s": 1.0, "debt_s": 4.0}, stream) == 1
    assert share_of_limits({"records": 81_920, "wall_s": 10.0, "debt_s": 0.0}, stream) == 0.5
