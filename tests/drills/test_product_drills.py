"""Recovery drills that are too long for `make test`, run as a user runs them. Their verdicts say
that nothing was lost, reordered or repeated without a reason. `kinesis-spout drill all` has more.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.shell.command_line import run_cli

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_S = 900.0  # nothing is measured by it: a drill may start a Spark job a dozen times
DRILLS = (
    "kill-driver-at-every-step",
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
