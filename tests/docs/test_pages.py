"""The blocks of all pages: Python compiles, imports what is there, gives arguments that there are,
and runs where it brings its own Kinesis; commands exist, with their options. Links between the
pages lead to files that are there; those inside of the site are checked by its build (`test_site`).
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import itertools
import re
import shlex
import symtable
import tomllib
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from typer import Exit

from kinesis_spout.config import AwsConfig, ReadRate
from kinesis_spout.spout import KinesisSpout, SpoutConfig
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from scheme import JsonScheme
from scripts.reference.commands import commands as load_commands
from scripts.reference.commands import global_options
from spark_job import DeadLetter, KinesisSource, Retry, TrackedBatch
from spark_job.batch_read.batch_settings import BATCH_OPTIONS
from spark_job.options import OPTIONS
from spark_job.sink.sink_settings import SINK_OPTIONS
from state.retry_policy import RetryPolicy
from tests.support.shell.pages import (
    ROOT,
    Block,
    Page,
    blocks,
    commands,
    commands_in,
    lines_of,
    needs_spark,
    pages,
    runs_by_itself,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PYTHON = blocks("python", "py")
COMPLETE = [
    pytest.param(block, marks=[pytest.mark.spark] if needs_spark(block) else [], id=str(block))
    for block in PYTHON
    if runs_by_itself(block)
]
# By the name under which pages call them; a method by its own.
KNOWN: dict[str, Callable[..., Any]] = {
    "KinesisSource": KinesisSource,
    "tracked": KinesisSource.tracked,
    "read_stream": KinesisSource.read_stream,
    "several": KinesisSource.several,
    "SpoutConfig": SpoutConfig,
    "KinesisSpout": KinesisSpout,
    "AwsConfig": AwsConfig,
    "ReadRate": ReadRate,
    "RetryPolicy": RetryPolicy,
    "FakeKinesis": FakeKinesis,
    "FakeKinesisServer": FakeKinesisServer,
    "JsonScheme": JsonScheme,
    "DeadLetter": DeadLetter,
    "to_stream": DeadLetter.to_stream,
    "Retry": Retry,
    "map_records": TrackedBatch.map_records,
    "fail_where": TrackedBatch.fail_where,
    "fail": TrackedBatch.fail,
}


def calls(block: Block) -> list[tuple[str, ast.Call]]:
    """The calls in a block, by the last part of what is called."""
    return [
        (ast.unparse(node.func).rpartition(".")[2], node)
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    ]


def unknown_arguments(name: str, call: ast.Call) -> set[str]:
    """Keywords of the call that the callable does not have; none where it takes any."""
    parameters = inspect.signature(KNOWN[name]).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return set()
    given = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    return given - {parameter.name for parameter in parameters}


def missing_imports(block: Block, saved: set[str]) -> list[str]:
    """Names that the block imports and that are not there. `saved`: modules that the reader was
    told to write.
    """
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return [
        f"{module}.{name}".rstrip(".")
        for module, name in found
        if module not in saved and not is_there(module, name)
    ]


def is_there(module: str, name: str) -> bool:
    try:
        loaded = importlib.import_module(module)
        if not name or hasattr(loaded, name):
            return True
        importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


def names_of(text: str) -> tuple[set[str], set[str]]:
    """The names that a Python block needs from elsewhere, and those that it gives."""
    module = symtable.symtable(text, "page", "exec")
    given = {
        one.get_name()
        for one in module.get_symbols()
        if one.is_assigned() or one.is_imported() or one.is_namespace()
    }
    needed: set[str] = set()
    tables = [module]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        needed |= {
            one.get_name()
            for one in table.get_symbols()
            if one.is_referenced() and (table is module or one.is_global())
        }
    return needed - given - set(dir(builtins)), given


def saved_modules() -> set[str]:
    """The files that pages tell the reader to save, by their modules."""
    return {name for page in pages() for name in re.findall(r"`(\w+)\.py`", page.prose)}


def test_blocks_of_directives_and_lists_are_found_too() -> None:
    """A check that finds no block passes always."""
    text = "- one\n\n  ```python\n  1\n  ```\n\n````{note}\n```python\n2\n```\n````\n"
    assert [block.text.strip() for block in Page("p.md", text).of("python")] == ["1", "2"]


def wrong_in(block: Block, saved: set[str]) -> list[str]:
    """Imports that are not there, and arguments that calls of the public API do not have."""
    compile(block.text, str(block), "exec")
    return missing_imports(block, saved) + [
        f"{name}({argument}=)"
        for name, call in calls(block)
        if name in KNOWN
        for argument in unknown_arguments(name, call)
    ]


def test_python_blocks_compile_and_name_imports_and_arguments_that_there_are() -> None:
    made_up = Page("p.md", "```python\nimport saved, scheme.jsn\nKinesisSource(straem='a')\n```\n")
    assert wrong_in(made_up.blocks[0], {"saved"}) == ["scheme.jsn", "KinesisSource(straem=)"]
    named = {name for block in PYTHON for name, _ in calls(block)}
    assert {"KinesisSource", "SpoutConfig"} <= named
    found = {str(block): wrong_in(block, saved_modules()) for block in PYTHON}
    assert {block: wrong for block, wrong in found.items() if wrong} == {}


def test_python_blocks_need_no_names_that_their_page_has_not_given() -> None:
    """Imported or assigned in the block, or in an earlier block of the page."""
    needed, _ = names_of("import a\ndef f(x):\n    return a.b(x, later, [y for y in x])\n")
    assert needed == {"later"}, "otherwise this test could not fail"
    missing: dict[str, set[str]] = {}
    for page in pages():
        known: set[str] = set()
        for block in page.of("python", "py"):
            needed, given = names_of(block.text)
            missing[str(block)] = needed - known
            known |= given
    assert {block: names for block, names in missing.items() if names} == {}


def test_python_blocks_give_the_source_values_that_it_takes() -> None:
    """Where all of them are written out. Nothing is connected to."""
    checked = 0
    for block in PYTHON:
        for name, call in calls(block):
            if name == "KinesisSource":
                try:
                    given = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
                except ValueError:
                    continue  # a name of the block's own
                KinesisSource(**given)
                checked += 1
    assert checked


def test_python_blocks_give_reader_options_that_exist() -> None:
    """The ones that are given to `format("kinesis")`, not those of a sink."""
    named = [
        name
        for block in PYTHON
        if 'format("kinesis")' in block.text
        for name in re.findall(
            r'\.option\("(\w+)"', block.text.split('format("kinesis")')[1].split(".load(")[0]
        )
    ]
    tables = (OPTIONS, BATCH_OPTIONS, SINK_OPTIONS)
    known = {option.name for table in tables for option in table.values()}
    assert set(named) <= known | {"checkpointLocation"}


@pytest.mark.parametrize("block", COMPLETE)
def test_a_block_that_runs_by_itself_does_what_it_says(
    block: Block,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """As it is written. A test function in it is called, with the tests' own Spark session and a
    folder where it takes them.
    """
    if needs_spark(block):
        request.getfixturevalue("spark")  # a block's own `getOrCreate` finds it
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block.text, str(block), "exec"), names)  # noqa: S102  # a block of our own page
    for name, function in list(names.items()):
        if name.startswith("test_"):
            taken = inspect.signature(function).parameters
            function(**{one: request.getfixturevalue(one) for one in taken})


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


def test_every_command_exists() -> None:
    made_up = ("make no", "pip install '.[sparc]'", ".venv/bin/python -m localstack.no", "kinesi")
    assert all(problem(shlex.split(line)) for line in made_up), "otherwise this could not fail"
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


def exported_in(where: str) -> list[tuple[str, str]]:
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
    for variable, value in exported_in(where):
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


_ITEM = re.compile(r"\s*([-*]|\d+\.) ")


def kind(line: str) -> str:
    """The part of a page that a line begins or continues."""
    if not line.strip():
        return ""
    if line.startswith("|"):
        return "table"
    if re.match("#+ ", line):
        return "heading"
    return "list" if _ITEM.match(line) or line.startswith("  ") else "text"


def bars(row: str) -> int:
    """The number of bars between the cells of a table's row, and around them."""
    return len(re.findall(r"(?<!\\)[|]", re.sub("`[^`]*`", "", row)))


def run_together(page: Page) -> list[str]:
    """Lines in which a formatter of paragraphs has joined parts that Markdown tells apart by lines:
    the rows of a table, a heading or a list and the text before it, two paragraphs with headwords.
    """
    lines = ["", *page.prose.splitlines()]
    return [
        line
        for before, line in itertools.pairwise(lines)
        if re.search(r"\w.*\| *-{3}", line)
        or re.search(r"^\|.*[^|]$", line)
        or re.search(r"[a-z`)][.] \*\*[A-Z][^*]+[.]\*\*", line)
        or (kind(before) != kind(line) and "" not in {kind(before), kind(line)})
        or (kind(before) == kind(line) == "heading")
        or (kind(before) == kind(line) == "table" and bars(before) != bars(line))
    ]


RUN_TOGETHER = (
    *("| a | b | | --- | --- | | c | d |", "| a | b | A fact.", "| a |\n| - |\n| b |\nA fact."),
    *("| a | b |\n| - | - |\n| c | d | | e | f |", "A fact. **All or nothing.** Another fact."),
    *("A fact.\n## Heading", "## Heading\nA fact.", "In these cases:\n- one"),
)


def test_headings_lists_and_tables_stand_on_lines_of_their_own() -> None:
    missed = [text for text in RUN_TOGETHER if not run_together(Page("p.md", text))]
    assert missed == [], "otherwise this could not fail"
    found = {page.name: run_together(page) for page in pages()}
    assert {name: lines for name, lines in found.items() if lines} == {}


LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE_LINK = re.compile(r"\[`([\w.]+)`\]\(([^)\s]+\.py)\)")


def dead_links(page: Page) -> list[str]:
    """Targets of links in the page that are no files."""
    folder = (ROOT / page.name).parent
    targets = [target.partition("#")[0] for target in LINK.findall(page.prose)]
    return [
        target
        for target in targets
        if target and "://" not in target and not (folder / PurePosixPath(target)).exists()
    ]


def test_files_that_pages_link_to_are_there() -> None:
    assert dead_links(Page("README.md", "[a](nowhere.md#x) [b](LICENSE) [c](#here)")) == [
        "nowhere.md"
    ]
    # The landing page names pages of a whole checkout (`scripts.reference.sidebar`).
    found = {page.name: dead_links(page) for page in pages() if page.name != "docs/index.md"}
    assert {name: dead for name, dead in found.items() if dead} == {}


def test_the_code_that_a_records_way_names_is_in_the_file_that_it_links_to() -> None:
    page = ROOT / "docs" / "concepts" / "a-records-way.md"
    named = CODE_LINK.findall(re.sub(r"\s+", " ", page.read_text(encoding="utf-8")))
    assert len(named) > 20
    for name, target in named:
        source = (page.parent / target).read_text(encoding="utf-8")
        defined = re.findall(r"^ *(?:class|def) (\w+)", source, re.MULTILINE)
        assert set(name.split(".")) <= {*defined, PurePosixPath(target).stem}, (name, target)
