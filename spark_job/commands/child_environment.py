"""The environment of the processes that the demo and `run` start."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

OUR_FOLDER = Path(__file__).resolve().parents[2]


def clean_environment() -> dict[str, str]:
    """The environment without anything that could lead to a real AWS account, our packages
    importable.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    kept["AWS_EC2_METADATA_DISABLED"] = "true"
    kept["PYTHONPATH"] = module_path(kept.get("PYTHONPATH", ""))
    return kept


def module_path(before: str, *folders: Path) -> str:
    """A PYTHONPATH on which a child finds `folders` and our packages, too when they are run from a
    checkout.

    An installed package is found anyway, and its folder must not be named: it would come before the
    standard library.
    """
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    added = [str(folder) for folder in (*folders, OUR_FOLDER) if folder.resolve() not in installed]
    given = [path for path in before.split(os.pathsep) if path]
    return os.pathsep.join([*given, *(path for path in added if path not in given)])
