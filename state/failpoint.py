"""Failpoints: named places at which a test stops the process to kill it there. Off in production.

`KINESIS_SPOUT_FAILPOINT=<name>@<file>` arms one of `NAMES`. The first process that reaches it
creates the file, writes its pid into it, and waits to be killed. Once the file exists the failpoint
is spent, and every process passes. Unarmed, `failpoint()` costs one comparison with None.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

STEPS = (
    "plan-created",
    "plan-logged",
    "log-appended",
    "log-sealed",
    "report-opened",
    "sink-written",
    "dead-letters-written",
    "report-part-written",
    "report-done",
    "plan-closed",
    "shard-states-half-written",
    "plan-settled",
)
"""Those of a batch, in its order."""
SKIP_STEPS = ("letters-saved", "states-moved")
"""Those of `checkpoint skip`."""
NAMES = frozenset({*STEPS, *SKIP_STEPS, "import-begun"})
VARIABLE = "KINESIS_SPOUT_FAILPOINT"


def from_env() -> tuple[str, Path] | None:
    """The armed failpoint and its marker file, or None."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    name, at, marker = text.partition("@")
    if name not in NAMES or not at or not marker:
        raise ValueError(
            f"{VARIABLE}={text} is not a failpoint; use <name>@<file>, where the name is one of "
            f"{', '.join(sorted(NAMES))}"
        )
    return name, Path(marker)


_ARMED = from_env()


def is_armed(name: str) -> bool:
    """Whether this is the armed failpoint, spent or not."""
    return _ARMED is not None and _ARMED[0] == name


def failpoint(name: str) -> None:
    """Block for ever if this is the armed failpoint and it is not spent; else return."""
    if _ARMED is None or _ARMED[0] != name:
        return
    try:
        with _ARMED[1].open("x") as marker:
            marker.write(str(os.getpid()))
    except FileExistsError:
        return
    while True:
        signal.pause()
