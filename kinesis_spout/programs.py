"""Where Python finds our modules and the user's, in this process and in its child processes; and
how to install an extra.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import ConfigError, described

if TYPE_CHECKING:
    from collections.abc import Callable


DISTRIBUTION = "kinesis-spout"
_REQUIREMENT = re.compile(r"([^<>=!~]+)(.*)")  # the package, and the bounds of its version
OUR_FOLDER = Path(__file__).resolve().parents[1]


def how_to_install(*extras: str, folder: Path = OUR_FOLDER) -> str:
    """A clause that says how to install the packages of `extras`: `run pip install ...`.

    `folder` holds our packages. What an extra needs is read from the project's file beside them, in
    a checkout, or else from the metadata of the distribution that is installed there.
    """
    needed = _of_checkout(folder) or _of_distribution(folder)
    bounds_of: dict[str, dict[str, None]] = {}  # two extras may need the same package
    for package in (each for extra in extras for each in needed.get(extra, ())):
        name, bounds = _REQUIREMENT.findall(package)[0]
        bounds_of.setdefault(name, {}).update(dict.fromkeys(filter(None, bounds.split(","))))
    if bounds_of:
        packages = [f"{name}{','.join(bounds)}" for name, bounds in bounds_of.items()]
        return f"run pip install {' '.join(map(shlex.quote, packages))}"
    plural = "extras" if len(extras) > 1 else "extra"
    return (
        f"install {DISTRIBUTION} again with its {plural} {' and '.join(extras)}, from the same "
        "checkout or wheel"
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


def split_name(text: str) -> tuple[str, str]:
    """The module's name and the function's. Raises `ConfigError`."""
    module, colon, function = text.partition(":")
    if not colon or not module or not function:
        raise ConfigError(
            f"{text!r} is not of the form module:function",
            "pass the name of a module and of a function in it, such as etl.orders:process",
        )
    return module, function


def load_function(text: str) -> Callable[..., Any]:
    """Import the function that `module:function` names, also from the current directory.

    The current directory stays on `sys.path`, for what the module imports later. Raises
    `ConfigError`.
    """
    module_name, function_name = split_name(text)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # a script that is no module may end the process
        raise ConfigError(
            f"{text}: the module cannot be imported ({described(exc)})",
            f"correct the module {module_name}, or name another module",
        ) from exc
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(
            f"{text}: module {module_name} ({module.__file__}) has no function {function_name}",
            f"name a function that module {module_name} defines",
        )
    return function  # type: ignore[no-any-return]  # any callable will do


def clean_environment() -> dict[str, str]:
    """An environment for a child process that cannot reach a real AWS account.

    It lacks all `AWS_*` variables and the instance metadata, and our packages are importable.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    kept["AWS_EC2_METADATA_DISABLED"] = "true"
    kept["PYTHONPATH"] = module_path(kept.get("PYTHONPATH", ""))
    return kept


def module_path(before: str, *folders: Path) -> str:
    """The PYTHONPATH `before` plus `folders` and the folder of our packages.

    So a child finds our packages in a checkout too. The folder of installed packages is left out:
    a child finds them anyway, and on PYTHONPATH they would come before the standard library.
    """
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    added = [str(folder) for folder in (*folders, OUR_FOLDER) if folder.resolve() not in installed]
    given = [path for path in before.split(os.pathsep) if path]
    return os.pathsep.join([*given, *(path for path in added if path not in given)])
