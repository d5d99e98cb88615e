"""The entry point of the console script, `kinesis-spout`. It imports nothing large before Ctrl-C is
handled.
"""

import io
import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line.

    Exit codes: 0 success, 1 an error, 2 wrong usage, 3 a service cannot be reached, 4 another
    process owns the application, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
    """
    # Ctrl-C ends the process without a stack trace, also while modules are imported, until a
    # command handles it. In a shell's background SIGINT is ignored, and stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the locale lacks becomes an escape
            stream.reconfigure(errors="backslashreplace")
    from kinesis_spout.cli.main import app  # noqa: PLC0415  # not before Ctrl-C is handled

    try:
        app(prog_name="kinesis-spout")
    except OSError as exc:  # of --help and --install-completion: a command says its own
        place = exc.filename or "stdout"
        sys.stderr.write(f"error: cannot write to {place}: {exc.strerror}\n")
        raise SystemExit(1) from None
    finally:
        try:
            sys.stdout.flush()
        except (
            OSError
        ):  # the command has its exit code: else Python tries again at its end, and complains
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def _open_closed_streams() -> None:
    """Open the standard streams that the caller has closed (`2>&-`): the next file or socket would
    get such a number, and a command that prints would end at once.

    What is read is empty, and messages are lost. But nothing can be written to such a stdout, since
    a record must not count as written.
    """
    streams = (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    )
    for name, mode, access in streams:
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, access)  # the lowest free number, which is this one
            os.set_inheritable(opened, True)  # noqa: FBT003  # it takes no names
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8", closefd=False))


if __name__ == "__main__":
    main()
