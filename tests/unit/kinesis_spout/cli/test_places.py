"""The options that commands share: as commands take them, and as texts and errors name them."""

from __future__ import annotations

import resource
import shlex
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import (
    Operation,
    Place,
    command,
    shell_command,
    write_file,
)
from kinesis_spout.cli.shared_options import (
    AWS,
    argument,
    option,
    own_options,
    with_zone,
)
from kinesis_spout.config import AwsConfig
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import SECURITY
from state.zookeeper.security import ZookeeperSecurity

if TYPE_CHECKING:
    from pathlib import Path

PLACE = Place(
    "my etl",
    "orders",
    "zk1:2181/apps",
    "root",
    ("profile=work", "zookeeperpassword=hush", "awsSecretAccessKey=hush", "zookeeperTls=true"),
    "eu-west-1",
    "http://localhost:4567",
)


def test_a_command_has_the_options_of_its_place_that_it_takes() -> None:
    where = "--application 'my etl' --stream orders --zookeeper zk1:2181/apps --zookeeper-root root"
    aws = "--region eu-west-1 --endpoint-url http://localhost:4567"
    assert shell_command(PLACE, ("peek", "1", "7")) == (
        f"kinesis-spout peek 1 7 {where} {aws} --option profile=work "
        "--option zookeeperPassword=... --option awsSecretAccessKey=... --option zookeeperTls=true"
    )
    assert shell_command(PLACE, ("resume",)) == (
        f"kinesis-spout resume {where} --option zookeeperPassword=... --option zookeeperTls=true"
    )
    assert shell_command(PLACE, ("redrive", "PATH")) == (
        f"kinesis-spout redrive PATH {aws} --option profile=work --option awsSecretAccessKey=..."
    )
    plain = Place("etl", "orders", "zk1", "kinesis-spout", None)
    assert shell_command(plain, ("reset",)) == (
        "kinesis-spout reset --application etl --stream orders --zookeeper zk1"
    )


def test_a_folded_command_is_the_same_for_a_shell() -> None:
    folded = shell_command(PLACE, ("checkpoint", "skip", "--shard", "1", "7"), 50)
    lines = folded.split("\n")
    assert max(map(len, lines)) <= 50
    assert all(line.endswith(" \\") for line in lines[:-1])
    pasted = folded.replace("\\\n", "")
    assert shlex.split(pasted) == shlex.split(
        shell_command(PLACE, ("checkpoint", "skip", "--shard", "1", "7"))
    )


NAMES = {
    "KINESIS_SPOUT_APPLICATION": "etl",
    "KINESIS_SPOUT_STREAM": "orders",
    "KINESIS_SPOUT_ZOOKEEPER": "zk1",
}


def placed(*words: str, application: str = "required", **environment: str) -> str:
    """What a command that takes a place prints: the place, or the usage error."""
    app = typer.Typer(add_completion=False)

    @app.command()
    @command(application)  # type: ignore[arg-type]
    def shown(op: Operation, *, yes: bool = option("Sure.")) -> None:
        place = op.place
        typer.echo(f"{place.application or None} {place.stream} {place.zookeeper or None} {yes}")

    return CliRunner().invoke(app, words, env=environment).output.strip()


def test_a_place_is_given_by_long_and_short_options_and_by_the_environment() -> None:
    assert placed("-a", "etl", "-s", "orders", "-z", "zk1", "--yes") == "etl orders zk1 True"
    assert placed(**NAMES) == "etl orders zk1 False"
    assert placed("--stream", "clicks", **NAMES) == "etl clicks zk1 False"
    assert "Missing option '--application'" in placed("-s", "orders", "-z", "zk1")


def test_an_application_that_may_be_left_out_needs_zookeeper_unless_the_environment_named_it() -> (
    None
):
    assert placed("-s", "orders", application="optional") == "None orders None False"
    assert "pass both" in placed("-s", "o", "-a", "etl", application="optional")
    assert "pass both" in placed("-s", "o", "-z", "zk1", application="optional")
    named = {"KINESIS_SPOUT_ZOOKEEPER": "zk1"}
    assert placed("-s", "orders", application="optional", **named) == "None orders None False"
    assert placed("-s", "o", "-a", "etl", application="optional", **named) == "etl o zk1 False"


STREAM = argument("The stream.", "STREAM")
START, PAIRS = option("The start.", "--from"), option("Any other.")


def test_the_options_are_those_of_the_spark_source() -> None:
    """All commands use one spelling, and none is left out."""
    assert list(AWS) == [field.name for field in fields(AwsConfig)]
    assert list(SECURITY) == [f"zookeeper_{each.name}" for each in fields(ZookeeperSecurity)]


@pytest.mark.parametrize(
    ("text", "is_repeated"),
    [
        ("2026-01-31 14:00", True),
        ("14:00", True),
        ("14:00+02:00", False),
        ("2026-01-31T14:00-05:00", False),
        ("-2h", False),
        ("AT:5", False),
    ],
)
def test_a_time_without_a_zone_is_repeated_with_it(
    capsys: pytest.CaptureFixture[str], text: str, *, is_repeated: bool
) -> None:
    """All others are as they were typed, also those that are refused later."""
    found, said = with_zone("--since", text), capsys.readouterr().err
    if not is_repeated:
        assert (found, said) == (text, "")
        return
    assert found is not None
    assert found.endswith(":00.000Z")
    assert said == f"note: --since {text} means {found}: a time without a time zone is in UTC\n"


@pytest.mark.parametrize(
    ("named", "given", "spelt"),
    [
        ("startingPosition", (), "option --from"),
        ("starting_position", (), "option --from"),
        ("starting_position", ("--option", "Starting_Position=x"), "option starting_position"),
        ("wire_format", (), "option wireFormat"),
        ("streamArn", (), "argument STREAM"),
        ("--from", (), "option --from"),
        ("sink", (), "option sink"),
    ],
)
def test_an_error_names_an_option_as_its_user_gave_it(
    named: str, given: tuple[str, ...], spelt: str
) -> None:
    """By the command's own option; by the key of `--option`, where that was given, or the command
    has no other; by its name alone, where nobody can give it.
    """
    app = typer.Typer(add_completion=False)

    @app.command()
    @own_options
    def made(
        stream: str = STREAM, *, start: str | None = START, option: list[str] | None = PAIRS
    ) -> None:
        raise ConfigError.of(named, "is wrong", "x")

    ended = CliRunner().invoke(app, ["orders", *given])
    assert ended.exit_code == 1
    assert ended.stderr == f"error: {spelt}: 'x' is wrong\n"


def test_a_new_file_that_cannot_be_written_whole_is_removed(tmp_path: Path) -> None:
    """The limit of a file's size stands for a full disk."""
    limits, file = resource.getrlimit(resource.RLIMIT_FSIZE), tmp_path / "etl.json"
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(CliError, match=r"cannot write to the file \(File too large"):
            write_file(file, b"more than ten bytes", "--to ", is_new=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not file.exists()
