"""A short soak of the standalone spout: real processes, a real ZooKeeper, kills and faults for half
a minute. `make soak` runs one of ten minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.drills.history.checks import broken_promises
from kinesis_spout.drills.soak import Pace, Soak
from kinesis_spout.drills.soak_report import table

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 30.0
SEED = 5  # draws kills, reshards and an absence of ZooKeeper within that time
PACE = Pace(
    records_per_s=100,
    reshard_s=(2.0, 6.0),
    kill_s=(3.0, 6.0),
    zookeeper_s=(6.0, 12.0),
    zookeeper_away_s=(0.0, 4.0),
)


def test_nothing_is_lost_or_reordered_while_processes_and_zookeeper_are_killed(
    tmp_path: Path,
) -> None:
    """Every record is acked or dead-lettered, keys stay in order, no checkpoint moves back, and
    nothing comes again that was committed.
    """
    said: list[str] = []
    outcome = Soak(tmp_path, seed=SEED, pace=PACE, tell=said.append).run(SECONDS)
    broken = outcome.troubles + broken_promises(outcome.history)
    figures = table(outcome, broken)
    assert not broken, figures
    assert outcome.history.faults, figures
    assert outcome.away, figures
    assert outcome.counts["split"] + outcome.counts["merge"], figures
    assert sum(n for what, n in outcome.counts.items() if what.startswith("fault")), figures
