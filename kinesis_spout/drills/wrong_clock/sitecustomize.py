# ruff: noqa: INP001  # no package: its folder is put on the path
"""Makes the product's clock wrong in each Python process of a drill's job: Python imports this at
its start if the folder is on its path. The file that the drill's variable names has the
milliseconds by which the clock is ahead; without it the clock is right.
"""

from __future__ import annotations

import os
from pathlib import Path

from kinesis_spout.clock import SystemClock

_right_ms = SystemClock.now_ms


def _wrong_ms(self: SystemClock) -> int:
    path = Path(os.environ["KINESIS_SPOUT_DRILL_CLOCK"])
    return _right_ms(self) + (int(path.read_text()) if path.exists() else 0)


if "KINESIS_SPOUT_DRILL_CLOCK" in os.environ:
    SystemClock.now_ms = _wrong_ms  # type: ignore[method-assign]  # that is the drill
