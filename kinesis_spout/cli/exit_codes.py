"""How commands fail: one sentence on stderr and an exit code, without a stack trace.

    CliError        what is wrong, where, what to do: FAILED
    Interrupted     SIGINT or SIGTERM: exit code 128 + the signal's number, as in a shell

Of other errors, `exit_code_of` says which code they have, or `operators_exit_code_of` in commands
that look at an application or change one. Usage errors are typer's: USAGE.
"""

import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

import typer
from rich.console import Console
from rich.text import Text

from kinesis_spout import errors as service_errors
from kinesis_spout.cli.plain_text import visible
from state import errors as state_errors

FAILED, USAGE, UNREACHABLE, OWNED = 1, 2, 3, 4
# The flag of a command for an option of Spark's reader, or for a field of the spout.
_FLAGS = {
    **dict.fromkeys(("streamName", "streamArn", "stream"), "--stream"),
    **dict.fromkeys(("applicationName", "application"), "--application"),
    **dict.fromkeys(("startingPosition", "starting_position"), "--from"),
    **dict.fromkeys(("endpointUrl", "endpoint_url"), "--endpoint-url"),
    **{name: f"--{name}" for name in ("zookeeper", "region")},
}
_OPTION = re.compile(rf"\boption ({'|'.join(_FLAGS)})(?![\w.])")
BROKEN_PIPE = 141  # of a program ended by SIGPIPE
_CODES: dict[type[Exception], int] = {
    service_errors.ServiceUnavailableError: UNREACHABLE,
    state_errors.StoreUnavailableError: UNREACHABLE,
    state_errors.OwnedByAnotherError: OWNED,
}
_OPERATORS_CODES: dict[type[Exception], int] = {
    service_errors.ConfigError: USAGE,
    service_errors.StreamNotFoundError: USAGE,
    state_errors.InvalidStoreSettingError: USAGE,
    service_errors.AccessDeniedError: UNREACHABLE,
    service_errors.CredentialsError: UNREACHABLE,
    service_errors.ThrottledError: UNREACHABLE,
    state_errors.EmbeddedZookeeperError: UNREACHABLE,
    state_errors.StoreAccessError: UNREACHABLE,
    **_CODES,
}


def exit_code_of(exc: Exception, codes: Mapping[type[Exception], int] = _CODES) -> int:
    """The exit code of a command that failed with this error: 3 where Kinesis or ZooKeeper cannot
    be reached, 4 where another process owns the application, 1 for all else.
    """
    if isinstance(exc, CliError) and isinstance(exc.__cause__, Exception):
        exc = exc.__cause__  # the sentence of a `CliError` may add to another error's
    return next((code for kind, code in codes.items() if isinstance(exc, kind)), FAILED)


def operators_exit_code_of(exc: Exception) -> int:
    """The same for an operator's command. It tells more: 2 for a wrong name or setting, 3 also
    where Kinesis or ZooKeeper refuses to answer.
    """
    return exit_code_of(exc, _OPERATORS_CODES)


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
    """Handles SIGINT and SIGTERM while a command runs. A context manager, for the main thread.

    A signal raises `Interrupted` in the main thread; inside `deferred` it only wakes `wait`, so
    that the command can end what it has started. A second one ends the process at once, as a kill
    would; with `once` it is ignored, for a command that has processes of its own to end. Leaving
    restores the earlier handlers.
    """

    def __init__(self, *, once: bool = False) -> None:
        self._once = once
        self._woken = threading.Event()
        self._number: int | None = None
        self._deferred = False
        self._before: dict[signal.Signals, Any] = {signal.SIGINT: None, signal.SIGTERM: None}

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in self._before}
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

    def wait(self, timeout_s: float) -> bool:
        """Wait for a signal; True when one has come."""
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
        if self._number is not None:
            if not self._once:
                os._exit(128 + number)
            return
        self._number = number
        self._woken.set()
        if not self._deferred:
            raise Interrupted(number)


@contextmanager
def one_sentence(
    errors: Console,
    *,
    ctx: typer.Context | None = None,
    debug: bool = False,
    log_file: Path | None = None,
    code_of: Callable[[Exception], int] = exit_code_of,
) -> Iterator[None]:
    """Turn an error raised inside into a sentence on `errors` and an exit code. A reader of stdout
    that is gone, as `head` goes, is no error to be told.

    `ctx`: the command's, whose flags the sentence then names. The traceback goes to `log_file` if
    there is one, and with `debug` also to `errors`.
    """
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except typer.Abort as exc:
        # A prompt was left, by Ctrl-C or at the end of stdin.
        raise typer.Exit(130 if isinstance(exc.__context__, KeyboardInterrupt) else 1) from exc
    except (KeyboardInterrupt, Interrupted) as exc:
        raise typer.Exit(exc.exit_code if isinstance(exc, Interrupted) else 130) from exc
    except BrokenPipeError:
        # Else Python flushes stdout at its end, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise typer.Exit(BROKEN_PIPE) from None
    except Exception as exc:
        log_file = getattr(exc, "log_file", None) or log_file
        if debug:
            traceback.print_exc(file=errors.file)
        if log_file is not None:
            # A log that cannot be written must not hide the sentence on stderr.
            with suppress(OSError), log_file.open("a", encoding="utf-8") as log:
                traceback.print_exc(file=log)
        sentence = in_flags(sentence_of(exc), ctx)
        errors.print(_line("error:", "bold red", sentence), soft_wrap=True)
        if log_file is not None and log_file.exists():
            errors.print(_line("details in", "dim", str(log_file)), soft_wrap=True)
        raise typer.Exit(code_of(exc)) from exc


def sentence_of(exc: BaseException) -> str:
    """The first paragraph of an error as one line. Errors of other packages are named by class."""
    text = " ".join(str(exc).strip().split("\n\n")[0].split()) or type(exc).__name__
    ours = type(exc).__module__.split(".")[0] in {"kinesis_spout", "state", "scheme", "spark_job"}
    return text if ours else f"{type(exc).__name__}: {text}"


def in_flags(sentence: str, context: typer.Context | None) -> str:
    """A sentence with its options as the command spells them: `option startingPosition` is `option
    --from`. One that the user gave as `--option KEY=VALUE` stays, and so does one that the command
    has no flag for.
    """
    if context is None:
        return sentence
    flags = {flag: one for one in context.command.params for flag in one.opts}
    pairs = {str(one).partition("=")[0].lower() for one in context.params.get("option") or ()}

    def spelt(match: re.Match[str]) -> str:
        flag = _FLAGS[match[1]]
        if match[1].lower() in pairs:
            return match[0]
        if flag in flags:
            return f"option {flag}"
        argument = flags.get(flag.removeprefix("--"))
        name = argument and (argument.metavar or argument.name)
        return f"argument {name.upper()}" if name else match[0]

    return _OPTION.sub(spelt, sentence)


def _line(head: str, style: str, text: str) -> Text:
    """A styled head and a text that is neither markup nor a command to the terminal: a file or a
    service may have put anything into it.
    """
    return Text.assemble((head, style), " ", visible(text))
