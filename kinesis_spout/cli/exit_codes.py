"""How commands fail: one sentence on stderr and an exit code, without a stack trace.

    CliError        what is wrong, where, what to do: FAILED
    Interrupted     SIGINT, SIGTERM or SIGHUP: exit code 128 + the signal's number, as in a shell

Of other errors, `CODES` says which code they have, or `TYPED_CODES`, or `OPERATORS_CODES` in
commands that look at an application or change one. Usage errors are typer's: USAGE.
"""

import os
import re
import signal
import stat
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

import typer
from rich.console import Console
from rich.text import Text

from kinesis_spout import errors as service_errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import ConfigError, error_sentence
from kinesis_spout.inspection.wording import visible
from kinesis_spout.options import SHARED
from state import errors as state_errors

FAILED, USAGE, UNREACHABLE, OWNED = 1, 2, 3, 4
BROKEN_PIPE = 141  # of a program ended by SIGPIPE
# `timeout` signals its child, and then the group of the child. A wrapper passes Ctrl-C on to a
# child that has it already.
SAME_SIGNAL_S = 0.5
Codes = Mapping[type[Exception], int]
# 3 where Kinesis or ZooKeeper cannot be reached, 4 where another process owns the application, 1
# for all else.
CODES: Codes = {
    service_errors.ServiceUnavailableError: UNREACHABLE,
    state_errors.StoreUnavailableError: UNREACHABLE,
    state_errors.OwnedByAnotherError: OWNED,
}
# Of commands whose settings are all on the command line: 2 also for a wrong one of these.
TYPED_CODES: Codes = {ConfigError: USAGE, **CODES}
# An operator's command tells more: 2 also for a wrong name, 3 also where Kinesis or ZooKeeper
# refuses to answer.
OPERATORS_CODES: Codes = {
    service_errors.StreamNotFoundError: USAGE,
    state_errors.InvalidStoreSettingError: USAGE,
    service_errors.AccessDeniedError: UNREACHABLE,
    service_errors.CredentialsError: UNREACHABLE,
    service_errors.ThrottledError: UNREACHABLE,
    state_errors.EmbeddedZookeeperError: UNREACHABLE,
    state_errors.StoreAccessError: UNREACHABLE,
    **TYPED_CODES,
}
# Fields of the spout and of Spark's reader -> options of commands that have another name.
_OPTION_NAMES = {
    **dict.fromkeys(("stream_name", "stream_arn"), "stream"),
    "application_name": "application",
    "starting_position": "from",
    "shards": "shard",
    "message_timeout_s": "message-timeout",
    "port": "metrics-port",
}
# In a sentence, but not in a quoted value.
_FIELD = re.compile(r"""(?<!['"\w])[a-z]+(?:_[a-z]+)+(?!['"\w])""")


class CliError(state_errors.RemediedError):
    """An error for the user of a command. `log_file`: the file that has the details."""

    def __init__(self, message: str, remedy: str = "", *, log_file: Path | None = None) -> None:
        super().__init__(message, remedy)
        self.log_file = log_file


class Interrupted(BaseException):
    """A signal asked the command to stop. No Exception, so that no handler swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class StopSignals:
    """Handles SIGINT, SIGTERM, and the SIGHUP of a closed terminal, while a command runs. A context
    manager, for the main thread. Where SIGHUP is ignored, as after `nohup`, it stays ignored.

    A signal raises `Interrupted` in the main thread; inside `deferred` it only wakes `wait`, so
    that the command can end what it has started. A second one, `SAME_SIGNAL_S` or more after the
    first, ends the process at once, as a kill would; with `once` it is ignored, for a command that
    has processes of its own to end. Leaving restores the earlier handlers.
    """

    def __init__(self, *, once: bool = False) -> None:
        self._once = once
        self._woken = threading.Event()
        self._number: int | None = None
        self._first_s = 0.0
        self._deferred = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.getsignal(number) for number in handled}
        if self._before[signal.SIGHUP] is signal.SIG_IGN:
            del self._before[signal.SIGHUP]
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Install the handlers; again after a library replaced them, as PySpark's context does."""
        for number in self._before:
            signal.signal(number, self._handle)

    @property
    def stopping(self) -> bool:
        """Whether a signal has come."""
        return self._number is not None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a signal, with None for as long as it takes; True when one has come."""
        return self._woken.wait(timeout_s)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside the block a signal interrupts nothing. It is raised at the end of the block,
        unless the block raises something itself.
        """
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self._number is not None:
            raise Interrupted(self._number)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now_s = SystemClock().monotonic_s()
        if self._number is not None:
            if not self._once and now_s - self._first_s >= SAME_SIGNAL_S:
                os._exit(128 + number)
            return
        self._number, self._first_s = number, now_s
        if number == signal.SIGHUP:
            _leave_terminal()
        self._woken.set()
        if not self._deferred:
            raise Interrupted(number)


def _leave_terminal() -> None:
    """Let stdout and stderr lead nowhere if they lead to the closed terminal: a write to it fails,
    and that error would hide why the command ends.
    """
    for output in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(output).st_mode):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, output)
                os.close(nowhere)


@contextmanager
def stdout_errors() -> Iterator[None]:
    """Raise `CliError` where stdout cannot be written, and `BrokenPipeError` where its reader is
    gone.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        problem = f"cannot write to stdout: {exc.strerror}"
        raise CliError(problem, "write to a file or a pipe that has room") from exc


@contextmanager
def one_sentence(
    errors: Console,
    *,
    ctx: typer.Context | None = None,
    log_file: Path | None = None,
    codes: Codes = CODES,
) -> Iterator[None]:
    """Turn an error that the block raises into a sentence on `errors` and an exit code. A closed
    pipe on stdout, as with `| head`, is not reported.

    `ctx`: the context of the command, so that the sentence names the options of the command. The
    traceback is written to `log_file` if there is one, and with --debug also to `errors`.
    """
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except (KeyboardInterrupt, Interrupted) as exc:
        raise typer.Exit(exc.exit_code if isinstance(exc, Interrupted) else 130) from exc
    except BrokenPipeError:
        raise typer.Exit(BROKEN_PIPE) from None
    except Exception as exc:
        log_file = getattr(exc, "log_file", None) or log_file
        if ctx is not None and ctx.find_root().params.get("_debug"):
            traceback.print_exc(file=errors.file)
        if log_file is not None:
            # A log that cannot be written must not hide the sentence on stderr.
            with suppress(OSError), log_file.open("a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
        lines = [("error:", "bold red", error_sentence(as_typed(exc, ctx)))]
        if log_file is not None and log_file.exists():
            lines.append(("details in", "dim", str(log_file)))
        for head, style, text in lines:
            # A file or a service may have put anything into the text: it is neither markup nor a
            # command to the terminal.
            errors.print(Text.assemble((head, style), " ", visible(text)), soft_wrap=True)
        # The sentence of a `CliError` may add to another error's.
        cause = exc.__cause__ if isinstance(exc, CliError) and exc.__cause__ else exc
        found = (code for kind, code in codes.items() if isinstance(cause, kind))
        raise typer.Exit(next(found, FAILED)) from exc


def as_typed(exc: Exception, ctx: typer.Context | None) -> Exception:
    """The error with its options in the command's spelling: `option startingPosition` becomes
    `option --from`, and `total_tasks` in its sentence `--total-tasks`. An option that the user
    passed as `--option KEY=VALUE`, or for which the command has no option of its own, is spelt as
    the key.
    """
    if ctx is None or not isinstance(exc, ConfigError):
        return exc
    name = exc.option or "--"
    if name.startswith("--"):
        return exc
    declared = {one for parameter in ctx.command.params for one in parameter.opts}

    def typed(field: str, otherwise: str) -> str:
        option = _OPTION_NAMES.get(field, field.replace("_", "-"))
        return next((one for one in (f"--{option}", option) if one in declared), otherwise)

    def in_options(text: str) -> str:
        return _FIELD.sub(lambda word: typed(word[0], word[0]), text)

    field = re.sub("([A-Z])", r"_\1", name).lower()
    keys = {pair.partition("=")[0].lower() for pair in ctx.params.get("option") or ()}
    as_key = name.lower() in keys
    key = SHARED[field].name if field in SHARED and not as_key else name
    option, kind = key if as_key else typed(field, key), "option"
    if option != key and not option.startswith("--"):
        option, kind = option.upper(), "argument"
    return ConfigError.about(option, in_options(exc.problem), in_options(exc.remedy), kind=kind)
