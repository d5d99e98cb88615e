"""LocalStack's pip runtime and the emulator in it end with their starters."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from localstack import runtime

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.emulator, pytest.mark.localstack]
LIMIT_S = 60.0
STARTER = """
import sys
from pathlib import Path
from localstack import runtime
with runtime.running(Path(sys.argv[1])) as service:
    print(service.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("killed", ["starter", "localstack"])
def test_nothing_is_left_when_one_of_its_processes_is_killed(killed: str, tmp_path: Path) -> None:
    """LocalStack sees the end of its starter, the emulator sees the end of LocalStack. Meanwhile
    neither connects to the outside.
    """
    log = tmp_path / "localstack.log"
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=runtime.HERE.parent,
    )
    with starter:
        assert starter.stdout is not None
        localstack = psutil.Process(int(starter.stdout.readline()))
        emulator = localstack.children(recursive=True)
        assert emulator
        (starter if killed == "starter" else localstack).kill()
        _, alive = psutil.wait_procs(
            emulator if killed == "localstack" else [localstack, *emulator], timeout=LIMIT_S
        )
        assert not alive
        assert "refused:" not in log.read_text()
