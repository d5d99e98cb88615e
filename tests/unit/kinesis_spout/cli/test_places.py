"""The options that say where an application is: as commands take them, and as texts name them."""

from __future__ import annotations

import shlex

import typer
from typer.testing import CliRunner

from kinesis_spout.cli.places import Operation, Place, command, folded_command, whole_command
from kinesis_spout.cli.shared_options import option

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
    assert whole_command(PLACE, ("peek", "1", "7")) == (
        f"kinesis-spout peek 1 7 {where} {aws} --option profile=work "
        "--option zookeeperPassword=... --option awsSecretAccessKey=... --option zookeeperTls=true"
    )
    assert whole_command(PLACE, ("resume",)) == (
        f"kinesis-spout resume {where} --option zookeeperPassword=... --option zookeeperTls=true"
    )
    assert whole_command(PLACE, ("redrive", "PATH")) == (
        f"kinesis-spout redrive PATH {aws} --option profile=work --option awsSecretAccessKey=..."
    )
    plain = Place("etl", "orders", "zk1", "kinesis-spout", None)
    assert whole_command(plain, ("reset",)) == (
        "kinesis-spout reset --application etl --stream orders --zookeeper zk1"
    )


def test_a_folded_command_is_the_same_for_a_shell() -> None:
    lines = folded_command(PLACE, ("checkpoint", "skip", "--shard", "1", "7"), 50)
    assert max(map(len, lines)) <= 50
    assert all(line.endswith(" \\") for line in lines[:-1])
    pasted = "\n".join(lines).replace("\\\n", "")
    assert shlex.split(pasted) == shlex.split(
        whole_command(PLACE, ("checkpoint", "skip", "--shard", "1", "7"))
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
