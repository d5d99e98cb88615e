"""The marks between which a reader is measured. Only the standard library: readers run in
environments of their own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MARK = "MARK "


def begin() -> None:
    """All that is before does not count: imports, connecting, warming up."""
    _mark("begin", {})


def end(records: int, **found: Any) -> None:
    """All `records` have been read. `found`: what else the reader measured."""
    _mark("end", {"records": records, **found})


def _mark(name: str, fields: dict[str, Any]) -> None:
    """Blocks until the harness has looked at the processes."""
    print(MARK + json.dumps({"mark": name, **fields}), flush=True)
    sys.stdin.readline()
