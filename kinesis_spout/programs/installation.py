"""How to install an extra: by the names of its packages.

No index has a package of ours, so our name would install nothing, or somebody else's package. And
the project itself need not be installed again: an extra only adds packages to it.
"""

from __future__ import annotations

import shlex
import tomllib
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "kinesis-spout"
OUR_FOLDER = Path(__file__).resolve().parents[2]


def how_to_install(*extras: str, folder: Path = OUR_FOLDER) -> str:
    """A clause that says how to install the packages of `extras`: `run pip install ...`.

    `folder` holds our packages. What an extra needs is read from the project's file beside them, in
    a checkout, or else from the metadata of the distribution that is installed there.
    """
    needed = _of_checkout(folder) or _of_distribution(folder)
    packages = dict.fromkeys(package for extra in extras for package in needed.get(extra, ()))
    if packages:
        return f"run pip install {' '.join(map(shlex.quote, packages))}"
    plural = "extras" if len(extras) > 1 else "extra"
    return (
        f"install {DISTRIBUTION} with its {plural} {' and '.join(extras)}, from the checkout or "
        "wheel that it came from"
    )


def _of_checkout(folder: Path) -> dict[str, list[str]]:
    """The requirements of each extra; empty where this is no checkout."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return {}
    return project["optional-dependencies"] if project["name"] == DISTRIBUTION else {}


def _of_distribution(folder: Path) -> dict[str, list[str]]:
    """The requirements of each extra, without their markers; empty without metadata."""
    found = next(iter(metadata.distributions(name=DISTRIBUTION, path=[str(folder)])), None)
    needed: dict[str, list[str]] = {}
    for line in (found.requires if found else None) or ():
        package, _, marker = line.partition(";")
        _, _, extra = marker.partition("extra ==")
        needed.setdefault(extra.strip(" \"'"), []).append(package.strip())
    return needed
