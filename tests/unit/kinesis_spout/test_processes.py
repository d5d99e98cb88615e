"""When `kill_family` returns, a process and its descendants have ended, whatever they did."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from kinesis_spout.processes import kill_family, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 30.0
PARENT = """
import subprocess, sys
child = [sys.executable, "-c", "import os, subprocess, sys; os.write(1, b'up'); {does}"]
many = [subprocess.Popen(child, stdin=subprocess.PIPE) for _ in range(3)]
sys.stdin.read()
"""
CHILDREN = {
    "lives on": "sys.stdin.read(); import threading; threading.Event().wait(60)",
    "ends with its parent": "sys.stdin.read()",
    "starts others": "[subprocess.run([sys.executable, '-c', 'pass']) for _ in range(500)]",
}


@pytest.fixture(params=CHILDREN.values(), ids=list(CHILDREN))
def parent(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process whose three children are up."""
    command = [sys.executable, "-c", PARENT.format(does=request.param)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(6) == "upupup"
        yield process
        process.kill()


def test_all_of_them_are_gone_and_no_other_process(parent: subprocess.Popen[str]) -> None:
    """The calling process stays alive, and so does a process that it had started before."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        family = psutil.Process(parent.pid).children(recursive=True)
        assert kill_family(parent) >= 4
        assert not any(runs(one) for one in family)
        assert parent.returncode == -9
        assert other.poll() is None
        assert kill_family(parent) == 0
        other.communicate(b"\n", timeout=LIMIT_S)
