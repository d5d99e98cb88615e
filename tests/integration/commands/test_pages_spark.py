"""The Python blocks of the pages that bring their own Kinesis and read it with Spark, run as
written in the tests' session.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.shell.pages import Block, blocks, brings_its_kinesis, needs_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COMPLETE = [
    block for block in blocks("python", "py") if brings_its_kinesis(block) and needs_spark(block)
]


@pytest.mark.spark
@pytest.mark.parametrize("block", COMPLETE, ids=str)
def test_a_block_with_spark_does_what_it_says(
    block: Block, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test function in a block is called, with a temporary directory if it takes one."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block.text, str(block), "exec"), names)  # noqa: S102  # a block of our own page
    for name, function in list(names.items()):
        if name.startswith("test_"):
            arguments = inspect.signature(function).parameters
            function(**{one: {"tmp_path": tmp_path, "spark": spark}[one] for one in arguments})
