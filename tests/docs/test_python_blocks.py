"""The Python blocks of all pages: they compile, import names that exist, call what there is with
arguments that it has, and run where they bring their own Kinesis.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import AwsConfig, ReadRate
from kinesis_spout.spout import KinesisSpout, SpoutConfig
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from scheme import JsonScheme
from spark_job import DeadLetter, KinesisSource, Retry, TrackedBatch
from spark_job.batch_read.batch_settings import BATCH_OPTIONS
from spark_job.options import OPTIONS
from spark_job.sink.sink_settings import SINK_OPTIONS
from state.retry_policy import RetryPolicy
from tests.support.shell.pages import Block, Page, blocks, brings_its_kinesis, needs_spark, pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PYTHON = blocks("python", "py")
COMPLETE = [
    pytest.param(block, marks=[pytest.mark.spark] if needs_spark(block) else [], id=str(block))
    for block in PYTHON
    if brings_its_kinesis(block)
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


def saved_modules() -> set[str]:
    """The files that pages tell the reader to save, by their modules."""
    return {name for page in pages() for name in re.findall(r"`(\w+)\.py`", page.prose)}


def made_up(text: str) -> Block:
    return Page("made-up.md", f"```python\n{text}\n```\n").blocks[0]


def test_blocks_of_directives_and_lists_are_found_too() -> None:
    """A check that finds no block passes always."""
    text = "- one\n\n  ```python\n  1\n  ```\n\n````{note}\n```python\n2\n```\n````\n"
    assert [block.text.strip() for block in Page("p.md", text).of("python")] == ["1", "2"]


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_every_python_block_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


def test_there_are_python_blocks() -> None:
    assert len(PYTHON) >= 3
    assert {"KinesisSource", "SpoutConfig"} <= {
        name for block in PYTHON for name, _ in calls(block)
    }


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_blocks_import_what_is_there(block: Block) -> None:
    assert missing_imports(made_up("from spark_job import KinesisSauce"), set())
    assert missing_imports(made_up("import nowhere"), {"nowhere"}) == []
    assert missing_imports(block, saved_modules()) == []


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_blocks_give_arguments_that_there_are(block: Block) -> None:
    """Of the calls whose names are those of the public API."""
    (wrong,) = calls(made_up("KinesisSource(straem='orders')"))
    assert unknown_arguments(*wrong) == {"straem"}
    for name, call in calls(block):
        if name in KNOWN:
            assert unknown_arguments(name, call) == set(), f"{block}: {name}"


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


def test_some_blocks_can_be_run() -> None:
    assert COMPLETE


@pytest.mark.parametrize("block", COMPLETE)
def test_a_block_that_brings_its_kinesis_does_what_it_says(
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
