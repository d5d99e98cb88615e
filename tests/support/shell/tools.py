"""What a few tests need beside Python packages: programs, which the set-up brings where apt can,
and the native decoder. Elsewhere these tests are skipped, and the summary of the run says so. With
CI set, they fail.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.runtimes import find_browser, find_promtool

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: its name, how it is found, Debian's package of it, and what its tests look at."""

    name: str
    find: Callable[[], str | None]
    package: str
    shows: str

    @property
    def reason(self) -> str:
        """Of a skip."""
        return (
            f"{self.name} is not installed, so {self.shows} is not tried: "
            f"apt-get install {self.package}"
        )

    def path(self) -> str:
        """Where the program is. Where it is not, skips the test that asks; in CI, fails it."""
        found = self.find()
        if found is None:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(self.reason)
        return found


BROWSER = Tool(
    "chromium", lambda: find_browser(os.environ), "chromium", "the page in a real browser"
)
PROMTOOL = Tool(
    "promtool",
    lambda: find_promtool(os.environ, ROOT),
    "prometheus",
    "what Prometheus makes of the alert rules",
)
NATIVE_DECODER = Tool(
    "kinesis_spout_native",
    lambda: found.origin if (found := find_spec("kinesis_spout_native")) else None,
    "cargo, then make setup",
    "the native page decoder",
)
_REASON = re.compile(r"\S+ is not installed, so .* is not tried: [^']*")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lines at the end of the run: how many tests were skipped for want of which tool."""
    skipped = terminalreporter.stats.get("skipped", [])
    found = (_REASON.search(str(report.longrepr)) for report in skipped)
    for reason, count in Counter(match[0] for match in found if match).items():
        terminalreporter.write_line(
            f"{count} test{'' if count == 1 else 's'} skipped: {reason}", yellow=True
        )
