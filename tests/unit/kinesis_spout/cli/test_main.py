"""The command line's help, version, exit codes and missing packages."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kinesis_spout import __version__
from kinesis_spout.cli.main import OWN_COMMANDS
from kinesis_spout.programs.installation import how_to_install
from tests.support.shell.command_line import call_cli, environment, run_cli

if TYPE_CHECKING:
    from pathlib import Path

ALL_COMMANDS = ("demo", "redrive", "run", *OWN_COMMANDS)


def test_version_is_printed_alone(tmp_path: Path) -> None:
    ended = run_cli("--version", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"kinesis-spout {__version__}\n")


def test_help_lists_every_command_and_the_demo_first(tmp_path: Path) -> None:
    ended = call_cli("--help", cwd=tmp_path)
    assert ended.returncode == 0
    places = [ended.stdout.index(f"│ {name} ") for name in ("demo", "run", "reset")]
    assert places == sorted(places)


def test_help_imports_no_command(tmp_path: Path) -> None:
    """It would take seconds, and a moment is what people wait for."""
    script = (
        "import sys\n"
        "from kinesis_spout.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('pyspark', 'pyarrow', 'boto3', 'botocore', 'kazoo') "
        "if name in sys.modules])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout.splitlines()[-1] == "[]"


def test_the_list_of_commands_shows_the_sentence_of_each_ones_own_help(tmp_path: Path) -> None:
    listed = " ".join(call_cli("--help", cwd=tmp_path).stdout.replace("│", " ").split())
    for name in ("consume", "local", "run", "demo"):
        own = call_cli(name, "--help", cwd=tmp_path).stdout.replace("│", " ").split("\n\n")[1]
        assert " ".join(own.split()) in listed


def test_ctrl_c_while_modules_are_imported_ends_without_a_stack_trace(tmp_path: Path) -> None:
    """The import of botocore sends the signal here, as a user who mistyped would."""
    (tmp_path / "botocore.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    )
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    ended = run_cli("consume", "orders", cwd=tmp_path, PYTHONPATH=path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_an_unknown_command_is_wrong_usage(tmp_path: Path) -> None:
    ended = call_cli("rum", cwd=tmp_path)
    assert ended.returncode == 2
    assert "rum" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_pyspark_a_spark_command_says_what_to_install(tmp_path: Path) -> None:
    hide("pyspark", tmp_path)
    for arguments in (("run", "--stream", "s"), ("demo", "--json")):
        ended = run_cli(*arguments, cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
        assert ended.returncode == 1
        assert ended.stdout == ""
        assert ended.stderr.count("\n") == 1
        assert how_to_install("spark") in ended.stderr


def test_without_pyspark_the_help_still_lists_everything(tmp_path: Path) -> None:
    hide("pyspark", tmp_path)
    ended = run_cli("--help", cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
    assert ended.returncode == 0
    assert listed_names(ended.stdout) == list(ALL_COMMANDS)
    assert f"(needs PySpark) {how_to_install('spark')}" in flowing(ended.stdout)


def test_without_the_demos_packages_the_demo_says_what_to_install(tmp_path: Path) -> None:
    hide("psutil", tmp_path)
    ended = run_cli("demo", "--json", cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert how_to_install("spark", "local") in ended.stderr


def test_without_the_demos_packages_the_help_and_run_are_complete(tmp_path: Path) -> None:
    hide("psutil", tmp_path)
    ended = run_cli("--help", cwd=tmp_path, PYTHONPATH=path_with(tmp_path))
    assert ended.returncode == 0
    assert listed_names(ended.stdout) == list(ALL_COMMANDS)
    assert f"(needs psutil) {how_to_install('spark', 'local')}" in flowing(ended.stdout)
    assert "Write a stream" in ended.stdout


def test_reset_without_a_zookeeper_is_one_sentence(tmp_path: Path) -> None:
    arguments = ("--application", "a", "--stream", "s", "--zookeeper", "127.0.0.1:1", "--yes")
    ended = call_cli("reset", *arguments, cwd=tmp_path)
    assert ended.returncode == 3
    assert ended.stderr.startswith("error: ZooKeeper at 127.0.0.1:1")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        (("reset",), "--zookeeper", "no server"),
        (("pause",), "--timeout", "long"),
        (("checkpoint", "history"), "--since", "-999999999d"),
        (("checkpoint", "rewind"), "--to", "-999999999d"),
        (("checkpoint", "set"), "--to", "-999999999d"),
    ],
)
def test_a_wrong_value_is_wrong_usage(
    tmp_path: Path, command: tuple[str, ...], option: str, value: str
) -> None:
    """Said in a sentence, before anything is asked."""
    given = {"--application": "a", "--stream": "s", "--zookeeper": "127.0.0.1:1"} | {option: value}
    words = [part for pair in given.items() for part in pair]
    ended = call_cli(*command, *words, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert value in " ".join(ended.stderr.replace("│", " ").split())


@pytest.mark.parametrize("missing", ["--application", "--stream", "--zookeeper"])
def test_reset_requires_its_options(tmp_path: Path, missing: str) -> None:
    given = {"--application": "a", "--stream": "s", "--zookeeper": "127.0.0.1:1"}
    del given[missing]
    ended = call_cli("reset", *[part for pair in given.items() for part in pair], cwd=tmp_path)
    assert ended.returncode == 2
    assert missing in ended.stderr


def listed_names(help_text: str) -> list[str]:
    """The first column of the list of commands."""
    _, _, listed = help_text.partition("─ Commands ─")
    lines = [line.removeprefix("│ ") for line in listed.splitlines() if line.startswith("│")]
    return [line.split()[0] for line in lines if not line.startswith(" ")]


def flowing(help_text: str) -> str:
    """The help without its frames and the breaks of its lines."""
    return " ".join(help_text.replace("│", " ").split())


def hide(module: str, folder: Path) -> None:
    """Let Python not find an installed module, as if it were not installed."""
    (folder / "sitecustomize.py").write_text(
        "import importlib.machinery as machinery\n"
        "found = machinery.PathFinder.find_spec\n"
        "def find_spec(name, *rest):\n"
        f"    return None if name.partition('.')[0] == {module!r} else found(name, *rest)\n"
        "machinery.PathFinder.find_spec = find_spec\n"
    )


def path_with(folder: Path) -> str:
    """PYTHONPATH with `folder` first."""
    return os.pathsep.join([str(folder), environment()["PYTHONPATH"]])
