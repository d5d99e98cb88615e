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
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os; os.write(1, b'{text}-out\\n'); os.write(2, b'{text}-err\\n')",
        ],
        check=True,
    )


def test_children_write_to_the_log_and_we_to_the_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log_file = tmp_path / "new" / "spark.log"
    with quiet(log_file) as screen:
        shout("jvm")
        screen.stdout.write("ours\n")
        screen.stderr.write("ours too\n")
    shout("later")
    assert log_file.read_text() == "jvm-out\njvm-err\n"
    assert capfd.readouterr() == ("ours\nlater-out\n", "ours too\nlater-err\n")


def test_stdout_can_be_kept_for_the_console_sink(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log_file = tmp_path / "spark.log"
    with quiet(log_file, keep_stdout=True):
        shout("jvm")
    assert log_file.read_text() == "jvm-err\n"
    assert capfd.readouterr() == ("jvm-out\n", "")


def test_the_log_is_appended_to_and_no_descriptor_is_left(tmp_path: Path) -> None:
    log_file = tmp_path / "spark.log"
    before = open_descriptors()
    for text in ("first", "second"):
        with quiet(log_file):
            os.write(2, f"{text}\n".encode())
    assert log_file.read_text() == "first\nsecond\n"
    assert open_descriptors() == before


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(CliError, match="give another with --log-file"),
        quiet(tmp_path / "file" / "spark.log"),
    ):
        pass
