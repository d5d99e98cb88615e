"""Names on the command line become drills, or one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kinesis_spout.drills.choice import choose
from kinesis_spout.drills.scenarios import DRILLS
from kinesis_spout.drills.setting import Setting
from kinesis_spout.drills.soak import fitting
from kinesis_spout.errors import ConfigError

SPARK, SPOUT = Setting(), Setting(spout=True)
REMOTE = Setting(endpoint_url="http://127.0.0.1:4566", is_emulator=True)


def names(given: list[str], setting: Setting = SPARK) -> list[str]:
    return [one.name for one in choose(given, setting, minutes=1)[0]]


@pytest.mark.parametrize("setting", [SPOUT, REMOTE])
def test_all_leaves_out_what_is_not_possible_and_says_why(setting: Setting) -> None:
    chosen, left_out = choose(["all"], setting, minutes=1)
    possible = {one.name for one in chosen}
    refused = {name for name, one in DRILLS.items() if one.of_all} - possible
    assert possible
    assert refused == {refusal.message.split()[0] for refusal in left_out}


@pytest.mark.parametrize(
    ("name", "setting", "says"),
    [
        ("kill-executor", SPOUT, "needs a Spark job"),
        ("throttling", REMOTE, "only the drill's own Kinesis"),
        ("record-outage", Setting(process="jobs:process"), "run the drill without --process"),
        ("kill-drivr", SPARK, "did you mean kill-driver"),
        ("qqqqqqqq", SPARK, "list the drills with --list"),
    ],
)
def test_a_drill_that_cannot_be_run_is_refused(name: str, setting: Setting, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        names([name], setting)


def test_a_soak_draws_only_what_its_world_has() -> None:
    """A world has one ZooKeeper and one kind of job as long as it lasts."""
    of_spark = {one.name for one in fitting(SPARK)}
    assert {"kill-driver", "throttling", "zookeeper-restart"} <= of_spark
    assert not {"kill-executor", "zookeeper-leader-loss", "kill-driver-at-every-step"} & of_spark
    assert "kill-executor" in {one.name for one in fitting(Setting(executors=True))}
    assert "kill-python-worker" not in {one.name for one in fitting(SPOUT)}


def test_the_guide_has_a_line_for_each_drill_with_its_sentence() -> None:
    """A drill that another one contains is named by its pattern."""
    guide = (Path(__file__).parents[4] / "docs/guides/drills.md").read_text("utf-8")
    for name, one in DRILLS.items():
        line = f"| `{name}` | {one.sentence} | "
        assert (line in guide) is not bool(one.step)
