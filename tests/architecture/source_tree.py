"""The project's Python files as syntax trees, and who imports whom: what the rules of the
architecture are checked on.

Nothing is imported or run: a rule also works on a made-up tree, where each test first shows that it
can fail.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kinesis_spout", "state", "scheme", "spark_job")
OTHER_CODE = ("tests", "scripts", "benchmarks", "localstack", "docs")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: `target` is a module's full name, `lazy` when no import of the file itself
    runs it, `for_types` when nothing ever does.
    """

    target: str
    line: int
    lazy: bool
    for_types: bool


@dataclass(frozen=True)
class Source:
    """One Python file."""

    root: Path
    path: Path

    @property
    def name(self) -> str:
        """The path from the root, with slashes."""
        return self.path.relative_to(self.root).as_posix()

    @property
    def module(self) -> str:
        parts = self.path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All imports, wherever they stand; `from a import b` counts as `a.b`, which may be a
        module or a name in `a`.
        """
        return tuple(self._imports_in(self.tree, lazy=False, for_types=False))

    def _imports_in(self, node: ast.AST, *, lazy: bool, for_types: bool) -> Iterator[Import]:
        how = {"lazy": lazy, "for_types": for_types}
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, **how) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = self._base_of(child)
                yield from (
                    Import(f"{base}.{alias.name}", child.lineno, **how) for alias in child.names
                )
            elif isinstance(child, ast.Call) and _is_import_call(child):
                yield Import(str(ast.literal_eval(child.args[0])), child.lineno, **how)
            only_for_types = for_types or _only_for_types(child)
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from self._imports_in(
                child, lazy=lazy or is_function or only_for_types, for_types=only_for_types
            )

    def _base_of(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        package = self.path.parent.relative_to(self.root).parts
        return ".".join(
            [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
        )


@cache  # a tree does not change while a test looks at it, and each file is parsed once a run
def sources(root: Path, *folders: str) -> list[Source]:
    """The Python files in the folders that exist, in a fixed order."""
    return [
        Source(root, path)
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
        if "node_modules" not in path.parts
    ]


def module_graph(files: list[Source], *, with_types: bool = True) -> dict[str, set[str]]:
    """Which of these modules each of them imports; importing a name out of a package counts as
    importing the package. `with_types`: also what it imports for types only.
    """
    modules = {file.module for file in files}
    return {
        file.module: {
            known
            for one in file.imports
            if (with_types or not one.for_types)
            and (known := _known(one.target, modules))
            and known != file.module
        }
        for file in files
    }


def reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """All modules that an import of `start` brings along, itself included."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(graph.get(module, ()))
    return found


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    """A made-up tree, for showing that a rule can be broken."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def _known(target: str, modules: set[str]) -> str | None:
    parts = target.split(".")
    candidates = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((candidate for candidate in candidates if candidate in modules), None)


def _is_import_call(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    literal = (
        bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    )
    return name in {"import_module", "__import__"} and literal


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    }
