"""The entry point of the console script, `kinesis-spout`. It imports nothing large before Ctrl-C is
handled.
"""

import io
import sys

from kinesis_spout.cli import early_interrupt


def main() -> None:
    """Run the command line.

    Exit codes: 0 success, 1 an error, 2 wrong usage, 3 a service cannot be reached, 4 another
    process owns the application, 130 Ctrl-C, 143 SIGTERM.
    """
    early_interrupt.begin()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the locale lacks becomes an escape
            stream.reconfigure(errors="backslashreplace")
    from kinesis_spout.cli.main import app  # noqa: PLC0415  # not before Ctrl-C is handled

    app(prog_name="kinesis-spout")


if __name__ == "__main__":
    main()
