"""The README says what is so: its options are the source's, its code compiles, its
commands exist.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from kinesis_spout.cli.main import app
from scripts.readme_options import README, table, with_table
from spark_job.kinesis_source import KinesisSource
from spark_job.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = README.read_text("utf-8")
MAKEFILE = (README.parent / "Makefile").read_text("utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [body for name, body in FENCE.findall(TEXT) if name == language]


def commands() -> Iterator[list[str]]:
    """The words of each command in the README's shell blocks, and of `make ...` and `kinesis-spout
    ...` in its sentences.
    """
    for block in blocks("sh"):
        yield from (
            shlex.split(line, comments=True)
            for line in block.replace("\\\n", " ").splitlines()
            if line.strip()
        )
    for quoted in re.findall(r"`((?:make|kinesis-spout) [a-z][^`]*)`", FENCE.sub("", TEXT)):
        yield shlex.split(quoted)


def extras() -> set[str]:
    project = tomllib.loads((README.parent / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def command_line(name: str) -> typer.Typer:
    """A command of the console script, as pyproject.toml names it: the checkout need not be
    installed.
    """
    project = tomllib.loads((README.parent / "pyproject.toml").read_text("utf-8"))["project"]
    points = project["entry-points"]["kinesis_spout.commands"]
    if name not in points:
        return app  # one of kinesis_spout's own
    module, _, function = points[name].partition(":")
    alone = typer.Typer(pretty_exceptions_enable=False)
    alone.command(name)(getattr(importlib.import_module(module), function))
    return alone


def options_of(name: str) -> set[str]:
    """The long and short options of a command."""
    command: Any = typer.main.get_command(command_line(name))
    found = getattr(command, "commands", {name: command}).get(name)
    assert found is not None, f"kinesis-spout has no command {name}"
    return {
        option
        for parameter in found.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def test_the_options_table_is_the_one_of_the_source() -> None:
    """`python3 -m scripts.readme_options --write` puts it right."""
    assert with_table(TEXT) == TEXT


def test_every_option_says_in_one_line_what_it_is_for() -> None:
    for option in OPTIONS.values():
        assert 10 < len(option.meaning) < 200, option.name
        assert not re.search(r"[\n|]|\.$", option.meaning), option.name
    assert len(table().splitlines()) == len(OPTIONS) + 2


def test_a_readme_without_the_marks_is_an_error_not_a_silence() -> None:
    with pytest.raises(ValueError, match="options: begin"):
        with_table("# a README")


def test_every_python_block_compiles() -> None:
    assert len(blocks("python")) >= 3
    for block in blocks("python"):
        compile(block, str(README), "exec")


def test_python_blocks_give_the_source_fields_that_it_has() -> None:
    """A block is not run here: it needs a stream."""
    calls = [
        node
        for block in blocks("python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "KinesisSource"
    ]
    assert calls
    for call in calls:
        KinesisSource(
            **{str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        )


def test_python_blocks_give_reader_options_that_exist() -> None:
    """The ones that are given to `format("kinesis")`, not those of a sink."""
    named = [
        name
        for block in blocks("python")
        if 'format("kinesis")' in block
        for name in re.findall(r'\.option\("(\w+)"', block.split('format("kinesis")')[1])
    ]
    assert named
    assert set(named) <= {option.name for option in OPTIONS.values()}


def test_python_blocks_import_what_is_there() -> None:
    imports = [
        node
        for block in blocks("python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and node.module in ("spark_job", "scheme")
    ]
    assert imports
    for node in imports:
        exec(ast.unparse(node), {})  # noqa: S102  # an import statement of our own README


def test_every_command_exists_with_its_options() -> None:
    seen = list(commands())
    assert ["make", "demo"] in seen
    assert ["make", "test"] in seen
    for words in seen:
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= make_targets(), words
        elif words[:2] == ["pip", "install"]:
            assert re.fullmatch(r"\.\[(\w+)\]", words[2])[1] in extras(), words  # type: ignore[index]  # no match fails too
        else:
            assert words[0] == "kinesis-spout", f"{words[0]} is not a command that this test knows"
            words = words[: words.index("|")] if "|" in words else words  # noqa: PLW2901  # what follows is not ours
            used = {word.partition("=")[0] for word in words[2:] if word.startswith("-")}
            assert used <= options_of(words[1]), words


def test_the_run_command_takes_its_arguments_as_written() -> None:
    """They are read and converted, and nothing is started."""
    (run,) = [
        words for words in commands() if words[:2] == ["kinesis-spout", "run"] and len(words) > 2
    ]
    with typer.main.get_command(command_line("run")).make_context("run", run[2:]) as context:
        assert context.params["stream"] == "orders"
        assert context.params["available_now"] is True


def test_files_that_the_readme_links_to_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert target.startswith("http") or (README.parent / Path(target)).exists(), target
