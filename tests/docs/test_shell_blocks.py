"""The commands of all pages exist: make targets, programs of the checkout, extras, and every
command and option of `kinesis-spout`, with the arguments that it asks for.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import cache
from typing import Any

import pytest
from typer import Exit

from scripts.reference.commands import commands as load_commands
from scripts.reference.commands import global_options
from tests.support.shell.pages import ROOT, Page, commands, commands_in, lines_of, pages

# Programs of the machine, whose options are not ours to check.
ORDINARY = frozenset(
    {"aws", "cat", "cd", "curl", "docker", "echo", "export", "git", "grep", "head", "jq", "kill"}
    | {"mkdir", "python", "python3", "rm", "sleep", "sort", "source", "spark-submit", "tail"}
    | {"unzip", "venv-pack", "wc"}
)
CHECKOUT_PYTHON = ".venv/bin/python"
COMMANDS = commands()
SPOUT = [(where, words) for where, words in COMMANDS if words[0] == "kinesis-spout"]


@cache
def all_commands() -> dict[str, Any]:
    """The program's commands by name; loaded once, for hundreds of lines of the pages."""
    return load_commands()


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def unknown_extras(words: list[str]) -> set[str]:
    """Extras that are asked of this package and that it does not have."""
    asked = [re.fullmatch(r"(?:\.|kinesis[-_]spout\S*)\[([\w,-]+)\]", word) for word in words]
    named = {name for match in asked if match for name in match[1].split(",")}
    return named - set(project()["optional-dependencies"])


def problem(words: list[str]) -> str | None:
    """Why a command that is not `kinesis-spout` cannot be run as it is written."""
    program, *rest = words
    if program == "make":
        unknown = {word for word in rest if "=" not in word} - make_targets()
        return f"make has no target {', '.join(sorted(unknown))}" if unknown else None
    if program == "pip":
        unknown = unknown_extras(rest)
        return f"there is no extra {', '.join(sorted(unknown))}" if unknown else None
    if program == CHECKOUT_PYTHON:
        name = rest[1].replace(".", "/") + ".py" if rest[0] == "-m" else rest[0]
        package = ROOT / name.removesuffix(".py") / "__init__.py"
        return None if (ROOT / name).exists() or package.exists() else f"there is no {name}"
    return None if program in ORDINARY else f"{program} is not a command that this test knows"


def options_of(name: str) -> set[str]:
    """The long and short options of a command of `kinesis-spout`; of a group of commands, help."""
    if any(known.startswith(f"{name} ") for known in all_commands()):
        return {"--help", "-h"}
    found = all_commands().get(name)
    assert found is not None, f"kinesis-spout has no command {name}"
    return {
        option
        for parameter in found.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help", "-h"}


def split_globals(words: list[str]) -> list[str]:
    """The command and what follows it: options of `kinesis-spout` itself stand before. The command
    of a group is one word with the group's name.
    """
    known = {name for option in global_options() for name in option.opts}
    rest = words[1:]
    while rest and rest[0] in known:
        rest = rest[1:]
    return [" ".join(rest[:2]), *rest[2:]] if " ".join(rest[:2]) in all_commands() else rest


def test_lines_are_taken_apart_as_a_shell_does() -> None:
    """Pipes, redirections, assignments and lines that go on."""
    block = Page(
        "p.md", "```sh\nA=1 make x > out 2>&1 \\\n  | jq .a && kinesis-spout b '--c d'\n```\n"
    ).blocks
    (line,) = lines_of(block[0])
    assert commands_in(line) == [["make", "x"], ["jq", ".a"], ["kinesis-spout", "b", "--c d"]]


@pytest.mark.parametrize(
    "line",
    [
        "make nothing",
        "pip install '.[sparc]'",
        "pip install 'kinesis-spout[spark,locale]'",
        ".venv/bin/python benchmarks/nothing.py",
        ".venv/bin/python -m localstack.nothing",
        "kinesis-spuot run",
    ],
)
def test_a_command_that_is_not_there_is_a_problem(line: str) -> None:
    """Otherwise the next test could not fail."""
    assert problem(shlex.split(line)) is not None


def test_every_command_exists() -> None:
    seen = [words for _, words in COMMANDS]
    assert ["make", "demo"] in seen
    assert ["make", "test"] in seen
    others = [(where, words) for where, words in COMMANDS if words[0] != "kinesis-spout"]
    assert {where: said for where, words in others if (said := problem(words))} == {}


def test_every_option_of_the_program_exists() -> None:
    assert SPOUT
    for where, words in SPOUT:
        name, *rest = split_globals(words)
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert used <= options_of(name), f"{where}: {shlex.join(words)}"


def written_out() -> list[tuple[str, list[str]]]:
    """The commands of shell blocks, which have all of their arguments."""
    return [
        (str(block), words)
        for page in pages()
        for block in page.of("sh", "bash", "shell", "console")
        for line in lines_of(block)
        for words in commands_in(line)
        if words[0] == "kinesis-spout"
    ]


def exported(where: str) -> list[tuple[str, str]]:
    """The variables that the block exports to its commands, with their values."""
    return [
        (variable, value)
        for page in pages()
        for block in page.of("sh", "bash", "shell", "console")
        if str(block) == where
        for line in lines_of(block)
        if line.startswith("export ")
        for variable, equals, value in (one.partition("=") for one in shlex.split(line)[1:])
        if equals
    ]


def parsed(name: str, arguments: list[str]) -> dict[str, Any]:
    """The command's arguments, read and converted; nothing is started. None for `--help`."""
    try:
        with all_commands()[name].make_context(name, list(arguments)) as context:
            found: dict[str, Any] = context.params
            return found
    except Exit:
        return {}


@pytest.mark.parametrize(("where", "words"), written_out(), ids=str)
def test_every_command_takes_its_arguments_as_written(
    where: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in exported(where):
        monkeypatch.setenv(variable, value)
    name, *arguments = split_globals(words)
    parsed(name, arguments)


def test_the_run_command_means_what_it_says() -> None:
    """It is the one command that stands for a job."""
    runs = [words for _, words in written_out() if words[1] == "run"]
    assert runs
    for run in runs:
        found = parsed("run", run[2:])
        assert found["stream"] == "orders"
        assert found["available_now"] is True


def test_the_landing_page_begins_with_two_commands() -> None:
    index = next(page for page in pages() if page.name == "docs/index.md")
    assert [lines_of(block) for block in index.of("sh")] == [
        ["make demo"],
        ["pip install '.[spark]'"],
    ]
