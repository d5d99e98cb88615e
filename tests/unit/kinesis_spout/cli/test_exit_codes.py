"""Errors end a command with one sentence and an exit code; signals with the code of a shell."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import typer
from rich.console import Console

from kinesis_spout.cli.exit_codes import OPERATORS_CODES, CliError, one_sentence
from kinesis_spout.errors import (
    ConfigError,
    CredentialsError,
    DataLossError,
    ServiceUnavailableError,
    StillThrottledError,
    StreamNotFoundError,
)
from state.errors import OwnedByAnotherError, StateError, StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path


def ended_with(error: BaseException, *, log_file: Path | None = None) -> tuple[int, str]:
    """The exit code and the output of a command that raises `error`."""
    shown = io.StringIO()
    with (
        pytest.raises(typer.Exit) as caught,
        one_sentence(Console(file=shown, width=60), log_file=log_file),
    ):
        raise error
    return caught.value.exit_code, shown.getvalue()


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (CliError("the file [a] is missing; make it"), "the file [a] is missing; make it"),
        (CliError(r"\[/bold] of a"), r"\[/bold] of a"),
        (CliError("a\\"), "a\\"),
        (CliError("shard \x1b[2Ja"), "shard \\x1b[2Ja"),
        (OSError("first\nsecond\n\nmore"), "OSError: first second"),
        (KeyError(), "KeyError: KeyError"),
    ],
)
def test_an_error_is_one_sentence_and_neither_markup_nor_a_command(
    error: Exception, shown: str
) -> None:
    """Its text may be from a file or a service. Errors of other packages are named."""
    assert ended_with(error) == (1, f"error: {shown}\n")


def test_the_traceback_goes_to_the_log_file_and_the_sentence_names_it(tmp_path: Path) -> None:
    log_file = tmp_path / "a.log"
    code, shown = ended_with(CliError("it broke", log_file=log_file))
    assert (code, shown) == (1, f"error: it broke\ndetails in {log_file}\n")
    assert "Traceback" in log_file.read_text()


def test_a_second_signal_ends_the_process_at_once() -> None:
    """Whatever it waits for."""
    script = (
        "import os, signal\n"
        "from kinesis_spout.cli.exit_codes import StopSignals\n"
        "with StopSignals() as stop, stop.deferred():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('first', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('never')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "first\n", "")


@pytest.mark.parametrize(
    ("error", "code", "operators_code"),
    [
        (CliError("no"), 1, 1),
        (ValueError("no"), 1, 1),
        (StateError("no"), 1, 1),
        (DataLossError("no"), 1, 1),
        (ConfigError("no"), 1, 2),
        (StreamNotFoundError("no"), 1, 2),
        (StillThrottledError("no"), 1, 3),
        (CredentialsError("no"), 1, 3),
        (StoreUnavailableError("no"), 3, 3),
        (ServiceUnavailableError("no"), 3, 3),
        (OwnedByAnotherError("no"), 4, 4),
    ],
)
def test_scripts_can_tell_what_is_worth_another_try(
    error: Exception, code: int, operators_code: int
) -> None:
    """A service that cannot be reached, and an application that runs, have codes of their own. An
    operator's command tells more by its code.
    """
    assert ended_with(error)[0] == code
    with (
        pytest.raises(typer.Exit) as ended,
        one_sentence(Console(file=io.StringIO()), codes=OPERATORS_CODES),
    ):
        raise error
    assert ended.value.exit_code == operators_code


def test_a_sentence_that_adds_to_an_error_keeps_its_code() -> None:
    """As of `produce`, which says what was put before the service did not answer."""
    error = CliError("no answer; 3 records were put")
    error.__cause__ = ServiceUnavailableError("no answer")
    assert ended_with(error)[0] == 3
