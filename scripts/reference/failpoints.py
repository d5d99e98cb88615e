"""The failpoints: their names, and where in the code they are."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.reference.markdown import code, page, table
from scripts.reference.words import FAILPOINTS
from state.failpoint import NAMES

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kinesis_spout", "state", "scheme", "spark_job")


def places() -> dict[str, str]:
    """Where the code calls `failpoint(name)`, by name: the module."""
    found: dict[str, str] = {}
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        text = path.read_text("utf-8")
        if "failpoint(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "failpoint":
                name = ast.literal_eval(node.args[0])
                found[name] = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return found


def failpoints_page() -> str:
    there = places()
    order = [*FAILPOINTS, *sorted(NAMES - set(FAILPOINTS))]
    rows = [
        (code(name), FAILPOINTS.get(name, ""), code(there.get(name, "")))
        for name in order
        if name in NAMES
    ]
    return page(table(("name", "state at the failpoint", "module"), rows))
