"""The command line's help, version, exit codes and missing packages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kinesis_spout import __version__
from kinesis_spout.cli.main import OWN_COMMANDS
from kinesis_spout.programs import how_to_install
from tests.support.shell.command_line import call_cli, environment, hide, path_with, run_cli

if TYPE_CHECKING:
    from pathlib import Path

ALL_COMMANDS = ("demo", "redrive", "run", *OWN_COMMANDS)


def test_version_is_printed_alone(tmp_path: Path) -> None:
    ended = run_cli("--version", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"kinesis-spout {__version__}\n")


def test_a_misspelt_command_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    ended = run_cli("statu", cwd=tmp_path)
    assert ended.returncode == 2
    assert "Did you mean 'status'?" in flowing(ended.stderr)


def test_a_shell_completes_the_names_of_commands_and_options(tmp_path: Path) -> None:
    def completed(line: str) -> list[str]:
        return run_cli(
            cwd=tmp_path,
            COMP_WORDS=line,
            COMP_CWORD=str(len(line.split()) - 1),
            _KINESIS_SPOUT_COMPLETE="complete_bash",
        ).stdout.split()

    assert completed("kinesis-spout st") == ["status"]
    assert "--zookeeper-root" in completed("kinesis-spout status --zoo")


COMMANDS_BELOW = {
    "checkpoint": ("show", "set", "skip", "reset", "export", "import", "history", "rewind"),
    "consumers": ("list", "remove"),
}


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_the_help_is_whole_in_80_columns(tmp_path: Path, name: str) -> None:
    """Nobody can type the name of an option that is cut."""
    for words in ((), *((below,) for below in COMMANDS_BELOW.get(name, ()))):
        shown = call_cli(name, *words, "--help", cwd=tmp_path, COLUMNS="80")
        assert shown.returncode == 0
        assert "--help" in shown.stdout
        assert "…" not in shown.stdout


def test_ctrl_c_while_modules_are_imported_ends_without_a_stack_trace(tmp_path: Path) -> None:
    """The import of botocore sends the signal here, as a user who mistyped would."""
    (tmp_path / "botocore.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    ended = run_cli("consume", "orders", cwd=tmp_path, PYTHONPATH=path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("module", "needed_by", "extras", "commands"),
    [
        ("pyspark", "PySpark", ("spark",), (("run", "--stream", "s"), ("demo", "--json"))),
        ("psutil", "psutil", ("spark", "local"), (("demo", "--json"),)),
    ],
)
def test_without_packages_the_help_is_whole_and_a_command_says_what_to_install(
    tmp_path: Path,
    module: str,
    needed_by: str,
    extras: tuple[str, ...],
    commands: tuple[tuple[str, ...], ...],
) -> None:
    hide(module, tmp_path)
    shown = run_cli("--help", cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
    assert shown.returncode == 0
    assert listed_names(shown.stdout) == list(ALL_COMMANDS)
    assert (
        f"Kill a Spark job that reads real flights from a local Kinesis: no record is lost. "
        f"(needs {needed_by})"
    ) in flowing(shown.stdout)
    helped = run_cli("demo", "--help", cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
    assert f"{needed_by} is not installed; {how_to_install(*extras)}" in flowing(helped.stdout)
    for words in commands:
        ended = run_cli(*words, cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
        assert how_to_install(*extras) in ended.stderr


def listed_names(help_text: str) -> list[str]:
    """The first column of the list of commands."""
    _, _, listed = help_text.partition("─ Commands ─")
    lines = [line.removeprefix("│ ") for line in listed.splitlines() if line.startswith("│")]
    return [line.split()[0] for line in lines if not line.startswith(" ")]


def flowing(help_text: str) -> str:
    """The help without its frames and the breaks of its lines."""
    return " ".join(help_text.replace("│", " ").split())
