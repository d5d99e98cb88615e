"""Named places where a test can stop the process for ever, so that it can be killed there. Off in
production.

`KINESIS_SPOUT_FAILPOINT=<name>@<file>` arms one: the first process to come by creates the file
(with its pid in it) and waits to be killed; when the file is there already, the failpoint is spent
and everybody passes. The names: see `NAMES`. Unarmed, `failpoint()` is one comparison with None.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

NAMES = frozenset(
    {
        "plan-created",
        "plan-logged",
        "end-published",
        "report-opened",
        "sink-written",
        "dead-letters-written",
        "report-part-written",
        "report-done",
        "plan-closed",
        "shard-states-half-written",
        "plan-settled",
    }
)
VARIABLE = "KINESIS_SPOUT_FAILPOINT"


def from_env() -> tuple[str, Path] | None:
    """The armed failpoint and its marker file, or None."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    name, at, marker = text.partition("@")
    if name not in NAMES or not at or not marker:
        raise ValueError(
            f"{VARIABLE}={text}: expected <name>@<file>, the name one of {', '.join(sorted(NAMES))}"
        )
    return name, Path(marker)


_ARMED = from_env()


def failpoint(name: str) -> None:
    """Wait here to be killed, if this is the armed failpoint and nobody was stopped by
    it before.
    """
    if _ARMED is None or _ARMED[0] != name:
        return
    try:
        with _ARMED[1].open("x") as marker:
            marker.write(str(os.getpid()))
    except FileExistsError:
        return
    while True:
        signal.pause()
