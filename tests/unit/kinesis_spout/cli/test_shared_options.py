"""The connection options of the commands."""

from __future__ import annotations

from dataclasses import fields

import pytest
import typer
from typer.testing import CliRunner

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
def test_a_time_without_a_zone_is_repeated_with_it(text: str, *, is_repeated: bool) -> None:
    """All others are as they were typed, also those that are refused later."""
    said: list[str] = []
    found = with_zone("--since", text, said.append)
    if not is_repeated:
        assert (found, said) == (text, [])
        return
    assert found is not None
    assert found.endswith(":00.000Z")
    assert said == [f"--since {text} means {found}: a time without a time zone is in UTC"]


@pytest.mark.parametrize(
    ("named", "given", "spelt"),
    [
        ("startingPosition", (), "option --from"),
        ("starting_position", (), "option --from"),
        ("starting_position", ("--option", "Starting_Position=x"), "option startingPosition"),
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
