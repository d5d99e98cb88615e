"""The entry point of the console script, `kinesis-spout`.

It imports nothing of its own at first: Ctrl-C ends the process from the first moment on, without a
stack trace, also while the modules of a command are imported.
"""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line.

    Exit codes: 0 success, 1 an error, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
    """
    # SIGINT is ignored where a shell has started the process in the background: leave that.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from kinesis_spout.cli.main import app  # noqa: PLC0415  # not before Ctrl-C is handled

    app()


def end_at_once(number: int, _frame: FrameType | None) -> None:
    """The handler of SIGINT until the command's own code runs."""
    os._exit(128 + number)


if __name__ == "__main__":
    main()
