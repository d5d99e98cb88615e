from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from state.process import (
    is_below,
    is_provably_dead,
    process_start,
    stopped_jvm,
    this_process,
)

if TYPE_CHECKING:
    from pathlib import Path

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux identifies processes reliably"
)


@linux_only
def test_a_process_that_ended_is_dead_before_and_after_it_was_waited_for() -> None:
    """A zombie no longer runs, so it owns nothing."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = msgspec.structs.replace(
            this_process(0), pid=process.pid, process_start=process_start(process.pid) or ""
        )
        assert owner.process_start
        assert not is_provably_dead(owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_provably_dead(owner)
    assert is_provably_dead(owner)


@linux_only
@pytest.mark.parametrize(("name", "is_jvm"), [("java", True), ("supervisor", False)])
def test_the_jvm_of_a_driver_is_told_from_other_parents(
    tmp_path: Path, name: str, *, is_jvm: bool
) -> None:
    """`spark-submit` is a JVM that starts the driver: a process is below the driver if it is below
    that JVM; and where it is stopped, the driver runs and is stopped all the same.
    """
    (tmp_path / name).symlink_to("/bin/sh")
    script = "sleep 60 & echo $!; sleep 60 & echo $!; wait"
    with subprocess.Popen(
        [tmp_path / name, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        driver, worker = (int(parent.stdout.readline()) for _ in range(2))
        owner = msgspec.structs.replace(
            this_process(0), pid=worker, process_start=process_start(worker) or ""
        )
        assert is_below(owner, parent.pid)
        assert is_below(owner, os.getpid())
        assert is_below(owner, driver) is is_jvm
        assert stopped_jvm(owner) is None
        parent.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, parent.pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped_jvm(owner) == (parent.pid if is_jvm else None)
        for pid in (driver, worker, parent.pid):
            os.kill(pid, signal.SIGKILL)


@linux_only
@pytest.mark.parametrize("identity", ["", "another-boot/pid:[1]/host"])
def test_a_process_elsewhere_is_never_provably_dead(identity: str) -> None:
    """One under another kernel or pid namespace, or one without a host identity. A process that has
    its pid again is not the holder, if it started at another time.
    """
    gone = msgspec.structs.replace(this_process(0), pid=2**22 + 1)
    assert is_provably_dead(gone)
    assert is_provably_dead(msgspec.structs.replace(this_process(0), process_start="1"))
    assert not is_provably_dead(this_process(0))
    assert not is_provably_dead(msgspec.structs.replace(gone, host_identity=identity))
