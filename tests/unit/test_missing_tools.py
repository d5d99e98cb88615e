"""A test that needs a program which is not installed is skipped, and the run's summary says so. In
CI it fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.shell.tools import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
from tests.support.shell.tools import Tool
LOOM = Tool("loom", lambda: None, "loom-tools", "the cloth")
def test_one(): LOOM.path()
def test_two(): LOOM.path()
"""
REASON = "loom is not installed, so the cloth is not tried: apt-get install loom-tools"


@pytest.mark.parametrize(
    ("ci", "code", "said"),
    [("", 0, f"2 tests skipped: {REASON}"), ("true", 1, f"Failed: {REASON}")],
)
def test_a_missing_tool_is_named_with_what_to_install(
    tmp_path: Path, ci: str, code: int, said: str
) -> None:
    """A run of its own, with two tests that ask for a program that nobody has."""
    (tmp_path / "test_cloth.py").write_text(TESTS)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no"),
            *("-p", "tests.support.shell.tools", "--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=tmp_path,
        env=os.environ | {"CI": ci, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert said in ended.stdout
