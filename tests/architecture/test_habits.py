"""Names that say something, imports that say what they bring, and no printing beside the command
line.
"""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from tests.architecture.source_tree import OTHER_CODE, PACKAGES, ROOT, sources, write_tree

if TYPE_CHECKING:
    from pathlib import Path

NAMELESS_FILES = frozenset({"utils", "util", "helpers", "common", "misc", "manager"})
PROGRAM = 'if __name__ == "__main__"'  # a process of its own, whose output somebody reads
COMMAND_LINE = (
    "kinesis_spout/cli/*",
    "spark_job/commands/run.py",
    "spark_job/commands/redrive.py",
    "spark_job/demo/command.py",
)


def nameless(root: Path) -> list[str]:
    """Files and classes whose name does not say what they are for."""
    files = sources(root, *PACKAGES, *OTHER_CODE)
    classes = [
        (file.name, node.name)
        for file in files
        for node in ast.walk(file.tree)
        if isinstance(node, ast.ClassDef)
    ]
    return [file.name for file in files if file.path.stem in NAMELESS_FILES] + [
        f"{name} has class {found}"
        for name, found in classes
        if found.endswith(("Manager", "Utils", "Helper"))
    ]


def star_imports(root: Path) -> list[str]:
    """Imports that do not say what they bring."""
    files = sources(root, *PACKAGES, *OTHER_CODE)
    return [
        f"{file.name}:{one.line}"
        for file in files
        for one in file.imports
        if one.target.endswith(".*")
    ]


def prints(root: Path) -> list[str]:
    """Writing to the terminal outside the command line."""
    return [
        f"{file.name}:{node.lineno} {called}"
        for file in sources(root, *PACKAGES)
        if PROGRAM not in file.text
        and not any(fnmatch(file.name, pattern) for pattern in COMMAND_LINE)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call)
        and (called := ast.unparse(node.func)) in {"print", "sys.stdout.write", "sys.stderr.write"}
    ]


def test_names_say_what_a_thing_is_for(tmp_path: Path) -> None:
    """No utils.py and no Manager."""
    bad = write_tree(
        tmp_path,
        {"state/utils.py": "", "scheme/a.py": "class ShardManager: ...\nclass Shard: ...\n"},
    )
    assert nameless(bad) == ["state/utils.py", "scheme/a.py has class ShardManager"]
    assert nameless(ROOT) == []


def test_imports_say_what_they_bring(tmp_path: Path) -> None:
    """No star imports."""
    bad = write_tree(tmp_path, {"state/a.py": "from os.path import *\nfrom os.path import join\n"})
    assert star_imports(bad) == ["state/a.py:1"]
    assert star_imports(ROOT) == []


def test_only_the_command_line_prints(tmp_path: Path) -> None:
    """A library's words go to the caller or to logging."""
    bad = write_tree(
        tmp_path,
        {
            "state/a.py": "import sys\nprint(1)\nsys.stderr.write('')\n",
            "kinesis_spout/cli/main.py": "print(1)\n",
            "scheme/b.py": f"print(1)\n{PROGRAM}: ...",
        },
    )
    assert prints(bad) == ["state/a.py:2 print", "state/a.py:3 sys.stderr.write"]
    assert prints(ROOT) == []
