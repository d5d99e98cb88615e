"""A test that needs a program which is not installed is skipped, the run's summary says so, and
CONTRIBUTING names each such file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.shell.pages import ROOT
from tests.support.shell.tools import BROWSER, PROMTOOL, TOOLS, Tool

if TYPE_CHECKING:
    from pathlib import Path

USERS = {
    BROWSER: {"tests/integration/commands/test_ui_in_a_browser.py"},
    PROMTOOL: {"tests/docs/test_monitoring.py"},
}
# How a test asks for the tool.
ASKS = {BROWSER: "browse: Callable", PROMTOOL: "PROMTOOL.path()"}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.names[0])
def test_the_files_that_need_a_tool_are_known_and_named(tool: Tool) -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if ASKS[tool] in path.read_text("utf-8") and path.name != "test_missing_tools.py"
    }
    assert found == USERS[tool]
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for named in (*found, tool.names[0], f"apt-get install {tool.package}"):
        assert named in page


def test_the_summary_says_what_was_not_tried_and_what_to_install(tmp_path: Path) -> None:
    """A run of its own, in which no such program can be found."""
    environment = os.environ | {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no"),
            str(ROOT / "tests" / "docs" / "test_monitoring.py"),
            *("-k", "prometheus_understands or pass_their_own", "--rootdir", str(ROOT)),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"2 tests skipped: {PROMTOOL.reason}" in ended.stdout
    assert "apt-get install prometheus" in ended.stdout
