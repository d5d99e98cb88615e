"""The rights that calls need: the table of permissions names the calls that the code makes, and no
other; and an error names the right that is missing.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.service.permissions import PERMISSIONS, Use, action_of
from scripts.reference.words import CALLS
from tests.architecture.source_tree import ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path


_SENDERS = frozenset({"call", "send", "_call_apart", "_reshard"})
_FAKE = "kinesis_spout/testing/"


def calls_in(root: Path) -> dict[str, set[str]]:
    """The operations that are called by name, each with the files that call it."""
    found: dict[str, set[str]] = {}
    for file in sources(root, "kinesis_spout", "spark_job"):
        if file.name.startswith(_FAKE):
            continue
        for node in ast.walk(file.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _SENDERS
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
                and node.args[0].value.islower()  # the fake's operations are spelt as on the wire
            ):
                found.setdefault(node.args[0].value, set()).add(file.name)
    return found


def test_the_uses_call_what_the_code_calls() -> None:
    """A call of an operation that no use has, and a use without a call, are both seen."""
    operations = {name for use in Use for name in PERMISSIONS[use].all_operations}
    assert set(calls_in(ROOT)) == operations
    assert {name: call.action for name, call in CALLS.items()} == {
        name: action_of(name) for name in CALLS
    }
    assert action_of("describe_stream_summary") == "kinesis:DescribeStreamSummary"


@pytest.mark.parametrize("use", list(Use))
def test_a_use_that_reads_or_writes_records_needs_the_key(use: Use) -> None:
    """Reading decrypts, putting encrypts. The stream of a drill has no key of its own."""
    needed = PERMISSIONS[use]
    if use is not Use.DRILL:
        assert ("kms:Decrypt" in needed.kms) == ("get_records" in needed.operations)
        assert ("kms:GenerateDataKey" in needed.kms) == ("put_records" in needed.operations)
