"""How to install an extra: from the checkout or wheel that this program came from.

No index has a package of ours, so our name alone would install nothing, or somebody else's package.
"""

from __future__ import annotations

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from collections.abc import Sequence

DISTRIBUTION = "kinesis-spout"
OUR_FOLDER = Path(__file__).resolve().parents[2]


def how_to_install(
    *extras: str, folder: Path = OUR_FOLDER, path: Sequence[str] | None = None
) -> str:
    """A clause that says how to install the packages of `extras`: `run pip install ...`.

    `folder` holds our packages; the metadata of an editable checkout is looked up in `path`, or
    else in `sys.path`. Where neither checkout nor wheel is there (any more), the extras' own
    packages are named. Reads the metadata of the installed distribution.
    """
    names = ",".join(extras)
    found = _installed_in([str(folder)])
    if _is_checkout(folder):
        editable = _direct_url(_installed_in(sys.path if path is None else path))
        is_editable = editable.get("dir_info", {}).get("editable", False)
        option = "--editable " if is_editable and _path_of(editable) == folder else ""
        return f"run pip install {option}{shlex.quote(f'{folder}[{names}]')}"
    direct = _direct_url(found)
    source = _path_of(direct)
    if source is not None:
        if source.exists():
            return f"run pip install {shlex.quote(f'{source}[{names}]')}"
    elif direct:
        wanted = f"{DISTRIBUTION}[{names}] @ {_requirement_url(direct)}"
        return f"run pip install {shlex.quote(wanted)}"
    packages = dict.fromkeys(_packages(found, extras))
    if packages:
        return f"run pip install {' '.join(map(shlex.quote, packages))}"
    plural = "extras" if len(extras) > 1 else "extra"
    return (
        f"install {DISTRIBUTION} with its {plural} {' and '.join(extras)}, from the checkout or "
        "wheel that it came from"
    )


def _installed_in(path: Sequence[str]) -> metadata.Distribution | None:
    return next(iter(metadata.distributions(name=DISTRIBUTION, path=list(path))), None)


def _is_checkout(folder: Path) -> bool:
    try:
        return f'name = "{DISTRIBUTION}"' in (folder / "pyproject.toml").read_text("utf-8")
    except (OSError, ValueError):
        return False


def _direct_url(found: metadata.Distribution | None) -> dict[str, Any]:
    """What pip noted when it installed from a path or a URL (PEP 610); empty for an index."""
    try:
        noted = json.loads((found.read_text("direct_url.json") if found else None) or "{}")
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) and isinstance(noted.get("url"), str) else {}


def _path_of(direct_url: dict[str, Any]) -> Path | None:
    """The checkout or wheel on this machine; None for a URL elsewhere."""
    parts = urlsplit(direct_url.get("url", ""))
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _requirement_url(direct_url: dict[str, Any]) -> str:
    vcs = direct_url.get("vcs_info")
    return f"{vcs['vcs']}+{direct_url['url']}@{vcs['commit_id']}" if vcs else direct_url["url"]


def _packages(found: metadata.Distribution | None, extras: Sequence[str]) -> list[str]:
    """The requirements of the extras, without their markers."""
    lines = [line.partition(";") for line in (found.requires if found else None) or ()]
    return [
        package.strip()
        for extra in extras
        for package, _, marker in lines
        if marker.replace("'", '"').replace(" ", "") == f'extra=="{extra}"'
    ]
