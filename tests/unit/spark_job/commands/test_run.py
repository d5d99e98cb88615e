"""The options of `run`, and the input that it refuses before Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from spark_job.commands.run import run

if TYPE_CHECKING:
    from pathlib import Path


ALL = "--stream s --application etl --zookeeper zk:2181"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("--sink parquet", 2, "needs a directory"),
        ("--sink orc", 2, "orc"),
        ("--available-now --trigger 1s", 2, "omit --trigger"),
        ("--option secret-without-key", 2, "expected key=value"),
        ("--application etl --zookeeper zk:2181", 1, "option --stream is missing"),
        (f"{ALL} --option streamname=a/b", 1, "option streamName: 'a/b' is not a stream name"),
        (f"{ALL} --from LATTEST", 1, "option --from: 'LATTEST'"),
        (f"{ALL} --option maxRecordPerShard=1", 1, "did you mean maxRecordsPerShard"),
        (f"{ALL} --process nope:f", 1, "No module named 'nope'"),
        (f"{ALL} --log-file /dev/null/log", 1, "choose another file with --log-file"),
    ],
)
def test_bad_input_is_refused_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    command = typer.Typer(pretty_exceptions_enable=False)
    command.command()(run)
    ended = CliRunner().invoke(command, arguments.split())
    assert ended.exit_code == code
    assert text in ended.output
    assert "secret-without-key" not in ended.output
    assert "Traceback" not in ended.output
    assert code == 2 or ended.output.count("\n") == 1


def test_an_option_without_effect_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    command = typer.Typer(pretty_exceptions_enable=False)
    command.command()(run)
    arguments = f"{ALL} --option probemaxshards=5 --log-file /dev/null/log"
    first, second = CliRunner().invoke(command, arguments.split()).output.splitlines()
    assert first.startswith("note: option probeMaxShards no longer has an effect: ")
    assert "choose another file with --log-file" in second
