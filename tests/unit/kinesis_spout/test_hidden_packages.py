"""A user's own module named `state` or `scheme` that hides ours raises one clear error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("name", "at"), [("state", "state.py"), ("scheme", "scheme/__init__.py")])
def test_a_module_that_hides_ours_is_named(name: str, at: str, tmp_path: Path) -> None:
    """It is beside the user's script, so it comes first in sys.path; also as a package."""
    file = tmp_path / at
    file.parent.mkdir(exist_ok=True)
    file.write_text("HOME = 'user'\n")
    script = tmp_path / "job.py"
    script.write_text("import kinesis_spout\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(f"ImportError: another module named {name} ({file})")
    )
