"""Output of Spark goes to the log, ours to the screen, and all descriptors are restored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kinesis_spout.cli.exit_codes import CliError
from spark_job.commands.child_processes import quiet


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def shout(text: str) -> None:
    """Have a child process write to both streams."""
    script = f"import os; os.write(1, b'{text}-out\\n'); os.write(2, b'{text}-err\\n')"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("keep", [False, True])
def test_children_write_to_the_log_and_we_to_the_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], *, keep: bool
) -> None:
    """Standard output can be kept, for the console sink. The log is appended to, and no descriptor
    is left.
    """
    log_file = tmp_path / "new" / "spark.log"
    before = open_descriptors()
    with quiet(log_file, keep_stdout=keep) as screen:
        shout("jvm")
        screen.stdout.write("ours\n")
        screen.stderr.write("ours too\n")
    with quiet(log_file):
        os.write(2, b"second\n")
    assert open_descriptors() == before
    shout("later")
    logged, kept = ("", "jvm-out\n") if keep else ("jvm-out\n", "")
    assert log_file.read_text() == f"{logged}jvm-err\nsecond\n"
    assert capfd.readouterr() == (f"{kept}ours\nlater-out\n", "ours too\nlater-err\n")


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(CliError, match="give another with --log-file"),
        quiet(tmp_path / "file" / "spark.log"),
    ):
        pass
