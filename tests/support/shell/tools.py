"""Programs that a few tests need, and that neither pip nor the set-up installs: without them, these
tests are skipped, and the summary of the run says so.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: the names that it has, Debian's package of it, and what its tests look at."""

    names: tuple[str, ...]
    package: str
    shows: str

    @property
    def reason(self) -> str:
        """Of a skip."""
        return (
            f"{self.names[0]} is not installed, so {self.shows} is not tried: "
            f"apt-get install {self.package}"
        )

    def path(self) -> str:
        """Where the program is. Skips the test that asks where it is not."""
        found = next((path for name in self.names if (path := shutil.which(name))), None)
        if found is None:
            pytest.skip(self.reason)
        return found


BROWSER = Tool(
    ("chromium", "chromium-browser", "google-chrome"), "chromium", "the page in a real browser"
)
PROMTOOL = Tool(("promtool",), "prometheus", "what Prometheus makes of the alert rules")
TOOLS = (BROWSER, PROMTOOL)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lines at the end of the run: how many tests were skipped for want of which tool."""
    skipped = terminalreporter.stats.get("skipped", [])
    for tool in TOOLS:
        count = sum(tool.reason in str(report.longrepr) for report in skipped)
        if count:
            terminalreporter.write_line(
                f"{count} test{'' if count == 1 else 's'} skipped: {tool.reason}", yellow=True
            )
