"""The top level holds the packages that were asked for and nothing else that can be imported by
accident.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from tests.architecture.source_tree import OTHER_CODE, PACKAGES, ROOT, write_tree

if TYPE_CHECKING:
    from pathlib import Path


def strangers(root: Path) -> list[str]:
    """Modules and packages at the top level beyond the asked ones; tools and tests are folders, not
    packages.
    """
    packages = [path.parent.name for path in root.glob("[!.]*/__init__.py")]
    modules = [path.name for path in root.glob("*.py")]
    missing = [f"{name} is missing" for name in PACKAGES if name not in packages]
    folders = [
        path.name
        for path in root.glob("[!.]*/")
        if any(path.glob("*.py")) and path.name not in {*PACKAGES, *OTHER_CODE}
    ]
    return sorted(
        {*(name for name in packages if name not in PACKAGES), *modules, *folders, *missing}
    )


def test_the_top_level_has_the_asked_packages_only(tmp_path: Path) -> None:
    """`state` and `scheme` are generic names already: no further name goes to the top."""
    packages = {f"{name}/__init__.py": "" for name in PACKAGES if name != "scheme"}
    bad = write_tree(
        tmp_path,
        {**packages, "tests/__init__.py": "", "setup.py": "", "tools/x.py": "", "docs/x.md": ""},
    )
    assert strangers(bad) == ["scheme is missing", "setup.py", "tests", "tools"]
    assert strangers(ROOT) == []


def test_the_wheel_ships_the_asked_packages_only() -> None:
    """What is installed is what stands at the top level, each with its types."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    assert sorted(wheel["packages"]) == sorted(PACKAGES)
    assert all((ROOT / name / "py.typed").is_file() for name in PACKAGES)
