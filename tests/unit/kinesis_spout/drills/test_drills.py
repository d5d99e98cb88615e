"""What a drill is chosen by, what its job reports, and what it has to catch."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.choice import choose
from kinesis_spout.drills.consumer import Teller, key_and_number
from kinesis_spout.drills.history.events import Step, Told
from kinesis_spout.drills.job import Job
from kinesis_spout.drills.scenarios import DRILLS
from kinesis_spout.drills.setting import DrillError, Need, Setting
from kinesis_spout.drills.soak import fitting
from kinesis_spout.drills.stream import OwnStream, Producers
from kinesis_spout.errors import ConfigError
from tests.simulation import run_mutants
from tests.simulation.run_mutants import DRILL

if TYPE_CHECKING:
    from collections.abc import Callable


SPARK, SPOUT = Setting(), Setting(spout=True)
REMOTE = Setting(endpoint_url="http://127.0.0.1:4566", is_emulator=True)


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
        choose([name], setting, minutes=1)


def test_a_soak_draws_only_what_its_world_has() -> None:
    """A world has one ZooKeeper and one kind of job as long as it lasts."""
    of_spark = {one.name for one in fitting(SPARK)}
    assert {"kill-driver", "throttling", "zookeeper-restart"} <= of_spark
    assert not {"kill-executor", "zookeeper-leader-loss", "kill-driver-at-every-step"} & of_spark
    assert "kill-executor" in {
        one.name for one in fitting(Setting(has=frozenset({Need.EXECUTORS})))
    }
    assert "kill-python-worker" not in {one.name for one in fitting(SPOUT)}


def test_the_guide_has_a_line_for_each_drill_with_its_sentence() -> None:
    """A drill that another one contains is named by its pattern."""
    guide = (Path(__file__).parents[4] / "docs/guides/drills.md").read_text("utf-8")
    for name, one in DRILLS.items():
        line = f"| `{name}` | {one.sentence} | "
        assert (line in guide) is not bool(one.step)


GOT = Told(5, Step.GOT, "shard-0", "", 17, "key-1", 3, 1)
ACK = Told(6, Step.ACK, "shard-0", "", 17, "key-1", 3, 1)


def test_what_is_told_is_read_as_it_grows_and_in_the_order_of_its_times(tmp_path: Path) -> None:
    """A line that is not whole yet is read later."""
    with OwnStream("orders") as stream:
        job = Job(tmp_path, Setting(spout=True), stream, "127.0.0.1:1", spout_tasks=1)
        run = job.start()
        job.end()
    assert job.read() == []
    teller = Teller(str(job.path(run)))
    teller.tell(ACK, GOT)
    job.read()
    with job.path(run).open("ab") as file:
        file.write(b"7 fail shard-0 18 key-")
    assert [told.step for told in job.told()] == [Step.GOT, Step.ACK]
    assert job.resolved == {ACK.record}
    with job.path(run).open("ab") as file:
        file.write(b"1 4 1 not yet\n")
    assert job.told()[-1] == Told(7, Step.FAIL, "shard-0", "job-1", 18, "key-1", 4, 1, "not yet")


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (lambda _, number: number // 0, ": ZeroDivisionError: "),
        (lambda key, _: key, "is of type str; return bytes"),
    ],
)
def test_a_payload_that_cannot_be_put_ends_the_drill_with_its_reason(
    payload: Callable[[str, int], bytes], why: str
) -> None:
    called = threading.Event()

    def noticed(key: str, number: int) -> bytes:
        called.set()
        return payload(key, number)

    errors: list[Exception] = []
    with OwnStream("drill") as stream:
        producers = Producers(stream, errors.append, records_per_s=1_000, seed=1, payload=noticed)
        producers.start()
        assert called.wait(30)
        producers.stop()
    (error,) = errors
    assert isinstance(error, DrillError)
    assert re.match(f"(cannot make )?the payload of 'key-[0-9]+', [0-9]+ ?{why}", str(error))


MUTANTS = [one for one in run_mutants.MUTANTS if one.catcher.startswith(DRILL)]


def test_each_drill_has_a_mutant_that_it_has_to_catch() -> None:
    """A new drill without one fails here."""
    caught = {one.catcher.split()[-1] for one in MUTANTS}
    assert caught == set(DRILLS)


@pytest.mark.parametrize("data", [b"", b'{"n": 5}', b"key-1 305", b"\xff 5", b"a b c", None])
def test_any_other_payload_has_its_partition_key_and_no_number(data: bytes | None) -> None:
    assert key_and_number(data, "key-1") == ("key-1", -1)
    assert key_and_number(data, None)[0] == "?"
