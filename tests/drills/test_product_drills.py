"""Recovery drills that are too long for `make test`, run as a user runs them: their verdicts say
that nothing was lost, reordered or repeated without a reason. And one that is stopped.
`kinesis-spout drill all` has more.
"""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest

from kinesis_spout.drills.history.events import decode_history
from kinesis_spout.processes import kill_family
from tests.integration.drills.test_drill_command import assert_kept, drilled
from tests.support.shell.command_line import command_line, environment, run_cli
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_S = 900.0  # nothing is measured by it: a drill may start a Spark job a dozen times
DRILLS = (
    "kill-driver-at-every-step",
    "kill-executor",
    "kill-python-worker --executors",
    "poison --spout",
    # Draws kills, reshards and an absence of ZooKeeper within that time.
    "soak --spout --minutes 0.5 --seed 5 --records-per-second 100",
    "soak --spout --efo --minutes 0.5 --seed 6 --records-per-second 100",
)


@pytest.mark.spark
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("drill", DRILLS)
def test_a_drill_keeps_all_promises(drill: str, tmp_path: Path) -> None:
    file = tmp_path / "verdict.json"
    arguments = ["drill", *drill.split(), "--json", str(file)]
    ended = run_cli(*arguments, cwd=tmp_path, timeout_s=LIMIT_S)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    (verdict,) = json.loads(file.read_bytes())
    assert verdict["faults"], said
    assert " 0  lost\n" in ended.stdout, said


@pytest.mark.spark
@pytest.mark.parametrize("more", [(), ("--efo",)])
def test_a_killed_spark_job_loses_nothing_and_the_verdict_says_so(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    verdict = drilled(tmp_path, "kill-driver", *more)
    assert_kept(verdict)
    assert [one["fault"] for one in verdict["faults"]] == ["kill -9 of the driver"]
    assert verdict["letters"] > 0
    (kept,) = (tmp_path / "kept").iterdir()
    history = decode_history((kept / "history.json").read_bytes())
    assert len(history.puts) == verdict["records"]
    assert set(history.tasks) == {"job-1", "job-2"}


def test_a_signal_ends_a_drill_with_all_that_it_started(tmp_path: Path) -> None:
    """Its job, its ZooKeeper, its files."""
    with subprocess.Popen(
        command_line("drill", "session-loss", "--spout"),
        cwd=tmp_path,
        env=environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as drill:
        try:
            assert drill.stderr is not None
            assert any(" s  the drill starts" in line for line in drill.stderr)
            children = psutil.Process(drill.pid).children(recursive=True)
            (directory,) = tmp_path.iterdir()
            assert len(children) >= 2
            drill.send_signal(signal.SIGTERM)
            assert drill.wait(60) == 128 + signal.SIGTERM
        finally:
            kill_family(drill)
    wait_until(lambda: not any(one.is_running() for one in children), timeout_s=30)
    assert not directory.exists()
