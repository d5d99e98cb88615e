"""Ctrl-C from the process's first moment until a command handles it: it ends the process at once,
without a stack trace, also while modules are imported.
"""

import os
import signal
from types import FrameType


def begin() -> None:
    """Install the handler, unless SIGINT is ignored, as in a shell's background."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)


def end() -> None:
    """Give Ctrl-C back to Python: the command is loaded."""
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
