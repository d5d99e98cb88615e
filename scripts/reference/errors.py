"""The error classes: why each is raised and what helps from `words`, its bases from the code."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import kinesis_spout
import scheme
import spark_job
import state
from kinesis_spout.errors import KinesisError
from kinesis_spout.service import faults
from scripts.reference.markdown import anchor, block, code, page, plain, table
from scripts.reference.words import ERRORS, NOT_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PACKAGES = (kinesis_spout, spark_job, state, scheme)
TESTING = "kinesis_spout.testing"


def error_classes() -> dict[str, type[BaseException]]:
    """Every exception class that the packages define, by name."""
    return {
        name: value
        for module in _modules()
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, BaseException)
        and value.__module__ == module.__name__
    }


def errors_page() -> str:
    found = {name: kind for name, kind in error_classes().items() if name not in NOT_ERRORS}
    parts = []
    for title, prefix in _SECTIONS.items():
        named = [name for name in sorted(found) if _section(found[name]) == prefix]
        parts.extend([f"## {title}", *(_error(name, found[name]) for name in named)])
    return page(*parts, "## Error codes of AWS", _codes())


def service_codes() -> dict[str, tuple[type[KinesisError], str]]:
    """The service's error codes: the class that each becomes, and the advice in its message."""
    tables = [
        value
        for value in vars(faults).values()
        if isinstance(value, dict)
        and value
        and all(
            isinstance(one, tuple) and issubclass(one[0], KinesisError) for one in value.values()
        )
    ]
    return next(one for one in tables if "ProvisionedThroughputExceededException" in one)


_SECTIONS = {
    "Kinesis, Spark and the spout": "kinesis_spout",
    "State in ZooKeeper": "state",
    "Schemes": "scheme",
    "The fake Kinesis of tests": TESTING,
}


def _modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def _section(kind: type[BaseException]) -> str:
    if kind.__module__.startswith(TESTING):
        return TESTING
    top = kind.__module__.partition(".")[0]
    return "kinesis_spout" if top == "spark_job" else top


def _error(name: str, kind: type[BaseException]) -> str:
    trouble = ERRORS.get(name)
    bases = ", ".join(base.__name__ for base in kind.__bases__)
    retryable = f" `{name}` is retryable." if getattr(kind, "retryable", False) else ""
    return page(
        anchor(f"error-{name.lower()}"),
        f"### `{name}`",
        f"{trouble.cause}{retryable}" if trouble else "",
        f"**Remedy.** {trouble.help}" if trouble else "",
        block("text", f"class {kind.__module__}.{name}({bases})"),
    )


def _codes() -> str:
    rows = [
        (code(name), f"[`{kind.__name__}`](#error-{kind.__name__.lower()})", plain(advice))
        for name, (kind, advice) in service_codes().items()
    ]
    return table(("code", "error", "remedy in the message"), rows)
