"""Mutants by a tool (mutmut) over the pure core, each against the core's own tests.

    python -m scripts.core_mutants [part of a mutant's name ...]

`[tool.mutmut]` in `pyproject.toml` names the modules and the tests. `tests/core_survivors.toml`
lists the mutants that survive, each with the reason why that is right. A survivor that it does not
list, and a listed one that no longer survives, are an error. Runs in a copy, in `mutants/`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import libcst as cst
from mutmut.__main__ import _run
from mutmut.mutation import file_mutation
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import mangled_name_from_mutant_name

LIST = Path("tests/core_survivors.toml")
CAUGHT = {"killed", "timeout", "caught by type check"}

_arrange = file_mutation.function_trampoline_arrangement
_skip = file_mutation.MutationVisitor._skip_node_and_children  # noqa: SLF001  # see below


def _is_property(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.FunctionDef) and [
        one.decorator.value for one in node.decorators if isinstance(one.decorator, cst.Name)
    ] == ["property"]


def _arranged(function: cst.FunctionDef, mutants: Any, class_name: str | None) -> Any:
    """A property's getter is switched like any function. What has its name is then the property."""
    if not _is_property(function):
        return _arrange(function, mutants, class_name)
    before, nodes, after, names = _arrange(
        function.with_changes(decorators=()), mutants, class_name
    )
    switch = cst.ensure_type(nodes[0], cst.FunctionDef)
    decorators = (*function.decorators, *switch.decorators)
    return before, [switch.with_changes(decorators=decorators), *nodes[1:]], after, names


def mutate_properties() -> None:
    """Mutmut leaves out decorated functions, so the tracker's checkpoint, too; it has no option."""
    file_mutation.function_trampoline_arrangement = _arranged
    setattr(  # noqa: B010  # a method is assigned, of a package that is not there for all who check
        file_mutation.MutationVisitor,
        "_skip_node_and_children",
        lambda self, node: not _is_property(node) and _skip(self, node),
    )


def survivors() -> dict[str, str]:
    """The mutants that no test caught: function and changed line, and mutmut's name for it."""
    found = {}
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for name, code in data.exit_code_by_key.items():
            if code is None or status_by_exit_code[code] in CAUGHT:
                continue
            module, _, function = mangled_name_from_mutant_name(name).rpartition(".")
            function = function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
            diff = get_diff_for_mutant(name, path=path).splitlines()[2:]
            was, now = ([line[1:].strip() for line in diff if line[0] == side] for side in "-+")
            new = [line for line in now if line not in was]
            change = new or ["without", *(line for line in was if line not in now)]
            found[f"{module}.{function}: {' '.join(change)}"] = name
    return found


def main(parts: list[str]) -> int:
    """Run the mutants whose names have one of these parts, or all, and compare with the list."""
    os.nice(5)
    shutil.rmtree("mutants", ignore_errors=True)
    mutate_properties()
    _run([f"*{part}*" for part in parts], None)  # what mutmut's command calls
    found = survivors()
    judged = tomllib.loads(LIST.read_text())["judged"]
    listed = {change for group in judged for change in group["changes"]}
    new = sorted(found.keys() - listed)
    gone = [] if parts else sorted(listed - found.keys())
    for change in new:
        print(f"survives ({found[change]}): {change}")  # noqa: T201
    for change in gone:
        print(f"is in {LIST}, and does not survive: {change}")  # noqa: T201
    print(f"{len(found)} survive, {len(new)} of them new; {len(gone)} are listed only")  # noqa: T201
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
