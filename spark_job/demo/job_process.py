"""The demo's job as a process of its own, which can be killed with all its descendants."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import psutil

from spark_job.commands.child_processes import clean_environment
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_job.demo.manifest import DemoDirectory

_LOG_TAIL_BYTES = 200_000
_LIMIT_S = 30.0
_LOOK_S = 0.02


class JobProcess:
    """A running `python -m spark_job.demo.job`, in a session of its own. Its output goes to the
    directory's log. The end of the with block kills it.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], directory: DemoDirectory, log_start: int
    ) -> None:
        self._process = process
        self._directory = directory
        self._log_start = log_start

    @classmethod
    def start(
        cls,
        directory: DemoDirectory,
        *,
        endpoint_url: str,
        max_records_per_shard: int,
        faults: bool,
    ) -> Self:
        with directory.job_log.open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "spark_job.demo.job", str(directory.path)),
                    *(
                        "--endpoint-url",
                        endpoint_url,
                        "--max-records-per-shard",
                        str(max_records_per_shard),
                    ),
                    *(("--faults",) if faults else ()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(),
                start_new_session=True,
            )
        return cls(process, directory, start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self, *, wait_s: float) -> int | None:
        """Wait up to `wait_s` for the job to end. Returns its exit code; None while it runs."""
        try:
            return self._process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> int:
        """Send kill -9 to the job and its descendants, and return their number. Idempotent."""
        return kill_family(self._process)

    def failure(self) -> str:
        """The cause of the job's failure, from the end of its log."""
        with self._directory.job_log.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(self._log_start, size - _LOG_TAIL_BYTES))
            return failure_sentence(log.read().decode(errors="replace"))


def kill_family(process: subprocess.Popen[Any]) -> int:
    """Send kill -9 to a process that we started and to its descendants, and return their number.

    A Spark job has a JVM and Python workers. Signals go to process ids, never to a group. Blocks
    until all have ended. Idempotent: returns 0 once the process has ended, since its descendants
    can no longer be found then.
    """
    if process.poll() is not None:
        return 0
    members = _stopped_tree(psutil.Process(process.pid))
    for member in members:
        _if_there(member.kill)
    process.wait(timeout=_LIMIT_S)
    _wait_for(members[1:])
    return len(members)


def runs(process: psutil.Process) -> bool:
    """Whether the process runs. A zombie does not: it has ended, but its parent has not waited for
    it, as process 1 of a container rarely does.
    """
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_for(members: list[psutil.Process]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while (
        members := [member for member in members if runs(member)]
    ) and time.monotonic() < deadline:
        psutil.wait_procs(members, timeout=_LOOK_S)


def _stopped_tree(root: psutil.Process) -> list[psutil.Process]:
    """The process and its descendants, all suspended, so that none can start another process while
    the others are killed.
    """
    members = [root]
    _if_there(root.suspend)
    while fresh := [child for child in root.children(recursive=True) if child not in members]:
        for child in fresh:
            _if_there(child.suspend)
        members += fresh
    return members


def _if_there(action: Callable[[], None]) -> None:
    try:
        action()
    except psutil.NoSuchProcess:
        return
