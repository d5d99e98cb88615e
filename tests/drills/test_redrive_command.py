"""`kinesis-spout redrive` as people and scripts use it: prompts, output, exit codes, and the effect
of a kill.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.dead_letter.letter import CHUNK_LETTERS
from kinesis_spout.testing import slow
from spark_job.dead_letter import DeadLetter, Letter
from tests.support.kinesis.services import SECRET_KEY, ServedFake, serve, words_of
from tests.support.outcomes.letters import Story, frame_of, gone, records_of
from tests.support.shell.command_line import command_line, environment, run_cli, running_cli
from tests.support.spark.session import COMMAND_OPTIONS
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LIMIT_S = 120.0
# How long a request has no response: enough to see it arrive, and to end its sender.
HELD_S = 10.0


@dataclass(frozen=True)
class Dead:
    """Dead letters in `dead` of the working directory, the command for them, and the service."""

    fake: ServedFake
    cwd: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("redrive", "dead", *words_of(self.fake.endpoint_url), *COMMAND_OPTIONS)

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        return run_cli(*self.arguments, *more, cwd=self.cwd)

    def run_on_terminal(self, answer: str) -> subprocess.CompletedProcess[str]:
        """Run with a terminal as stdin, on which `answer` is typed."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer.encode())
            return subprocess.run(
                command_line(*self.arguments),
                cwd=self.cwd,
                env=environment(),
                stdin=theirs,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)

    def on(self, stream: str = "orders") -> list[tuple[str | None, bytes]]:
        (shard,) = self.fake.model.shards(stream)
        return [
            (record.partition_key, record.data)
            for record in self.fake.model.records(stream, shard.shard_id)
        ]


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Dead]:
    with serve() as fake:
        fake.model.create("orders")
        yield Dead(fake, tmp_path)


def write(
    spark: SparkSession,
    dead: Dead,
    letters: list[Letter],
    format: str = "parquet",  # noqa: A002  # Spark's name for it
) -> None:
    DeadLetter(format, path=str(dead.cwd / "dead")).write(frame_of(spark, letters), plan_id="1-a")


def test_a_dry_run_counts_and_a_run_puts_what_it_counted(spark: SparkSession, dead: Dead) -> None:
    """After a yes, and once: a second run has nothing to put. With --json, stdout is one object.
    Spark reads orc.
    """
    write(spark, dead, [*Story().letters(3), gone(Story().letter(3))], "orc")
    dry = dead.run("--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    found = json.loads(dry.stdout)
    counts = (found["dryRun"], found["toPut"], found["put"], found["withoutPayload"])
    assert counts == (True, 3, 0, 1)
    assert [(reason["reason"], reason["letters"]) for reason in found["reasons"]] == [
        (Story().reason, 3)
    ]
    refused = dead.run_on_terminal("n\n")
    assert (refused.returncode, "error" in refused.stderr, dead.on()) == (1, False, [])
    done = dead.run_on_terminal("y\n")
    assert done.returncode == 0, done.stderr
    assert "Put 3 records?" in done.stderr
    assert "3 dead letters to put" in done.stdout
    assert done.stdout.splitlines()[-1] == "put 3"
    assert dead.on() == records_of(Story().letters(3))
    again = dead.run("--yes")
    assert (again.returncode, again.stdout.splitlines()[:2]) == (
        0,
        ["no dead letters to put", "dead letters that earlier runs put: 3"],
    )
    assert len(dead.on()) == 3
    assert (
        SECRET_KEY not in done.stdout + done.stderr + (dead.cwd / "kinesis-spout.log").read_text()
    )


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ((), 1, "pass --yes"),
        (("--option", "startingPosition=LATEST", "--yes"), 2, "startingPosition is not"),
    ],
)
def test_what_cannot_work_is_reported_before_spark_starts(
    dead: Dead, more: tuple[str, ...], code: int, says: str
) -> None:
    ended = dead.run(*more)
    assert (ended.returncode, says in ended.stderr) == (code, True), ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (dead.cwd / "kinesis-spout.log").exists()


def test_a_missing_path_is_reported_before_spark_starts(tmp_path: Path) -> None:
    ended = run_cli("redrive", "typo", "--dry-run", *COMMAND_OPTIONS, cwd=tmp_path)
    assert (ended.returncode, "typo does not exist" in ended.stderr) == (1, True), ended.stderr
    assert not (tmp_path / "kinesis-spout.log").exists()


def test_a_signal_lets_it_record_what_it_has_put(spark: SparkSession, dead: Dead) -> None:
    """It ends after the request in progress, with a shell's exit code. (The run command's tests
    have Ctrl-C, which takes the same way.)
    """
    write(spark, dead, Story().letters(2 * CHUNK_LETTERS + 1))
    faults = dead.fake.model.faults
    faults.add(slow(HELD_S), operation="PutRecords", skip=1)
    with running_cli(*dead.arguments, "--yes", cwd=dead.cwd, stderr=subprocess.PIPE) as process:
        wait_until(lambda: bool(faults.struck) or process.poll() is not None, LIMIT_S)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        rest = process.stderr.read()
        assert process.wait(LIMIT_S) == 143
    assert "1,000 of 1,001 records were put. Run" in rest
    assert len(dead.on()) == 2 * CHUNK_LETTERS
    assert dead.run("--yes").stdout.splitlines()[-1] == "put 1"
