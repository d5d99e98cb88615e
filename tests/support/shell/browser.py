"""A real browser, headless, where the machine has one: Chromium, as Debian's package has it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.shell.tools import BROWSER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIME_LIMIT_S = 180.0
# Nothing but the page is asked for, by an empty profile.
SWITCHES = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., str]:
    """A function of an address and of further switches: what the browser writes to stdout."""
    program = BROWSER.path()
    # Its sandbox does not run as root. The pages are our own.
    rights = ("--no-sandbox",) if os.geteuid() == 0 else ()

    def run(address: str, *switches: str) -> str:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        return subprocess.run(
            [program, *SWITCHES, *rights, profile, *switches, address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=True,
        ).stdout

    return run
