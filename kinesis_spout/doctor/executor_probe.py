"""What runs in an executor. It is sent there by value, as our package may be missing there: so it
imports nothing of ours before it has to.
"""

from __future__ import annotations

import os
import platform
import socket
from typing import Any


def probe(place: str | None) -> dict[str, Any]:
    """How this executor is.

    - `host`, and `worker`, the process that starts the Python workers of one executor
    - `python`, and `version` of our package, None where it cannot be imported; `error` says why
    - `findings`: of `examine_executor`, for a `place` (`Place.to_json`)
    """
    seen: dict[str, Any] = {
        "host": socket.gethostname(),
        "worker": os.getppid(),
        "python": platform.python_version(),
        "version": None,
        "error": None,
        "findings": [],
    }
    try:
        import kinesis_spout  # noqa: PLC0415  # it may be missing

        seen["version"] = kinesis_spout.__version__
        from kinesis_spout.doctor.examination import (  # noqa: PLC0415
            Place,
            examine_executor,
        )
    except Exception as exc:  # noqa: BLE001  # a broken installation may raise anything
        seen["error"] = f"{type(exc).__name__}: {exc}"
        return seen
    if place is not None:
        seen["findings"] = [one.as_json() for one in examine_executor(Place.of_json(place))]
    return seen
