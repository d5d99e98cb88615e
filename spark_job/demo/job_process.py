"""The demo's job as a process of its own, which can be killed with all its descendants."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Self

from kinesis_spout.programs.modules import clean_environment
from kinesis_spout.programs.processes import kill_family
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from spark_job.demo.manifest import DemoDirectory

_LOG_TAIL_BYTES = 200_000


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
