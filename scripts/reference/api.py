"""The public Python API: autodoc directives for every name that the public packages export."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import is_dataclass
from functools import cache
from itertools import takewhile
from textwrap import indent
from types import FunctionType

import msgspec

from scripts.reference.markdown import block, page
from scripts.reference.rst import rst_of as _rst_of

PAGES: dict[str, tuple[str, ...]] = {
    "spark": ("spark_job",),
    "spark-acker": ("spark_job.acker",),
    "dead-letters": ("spark_job.dead_letter",),
    "spout": ("kinesis_spout.spout",),
    "tuple-trees": ("kinesis_spout.tuple_tree",),
    "metrics": ("kinesis_spout.prometheus_exporter", "spark_job.metrics"),
    "configuration": ("kinesis_spout.config", "state.retry_policy"),
    "schemes": ("scheme",),
    "testing": ("kinesis_spout.testing",),
}
# These have no `__all__`: they are modules whose other names are for the packages above them.
EXPORTED = {
    "kinesis_spout.config": ("AwsConfig", "ReadRate", "StreamRef"),
    "state.retry_policy": ("RetryPolicy",),
}
MAX_FIELDS = 20
# Shown on the page of the package that defines them.
ELSEWHERE = {"spark_job": ("DeadLetter",)}


def exported(module: str) -> tuple[str, ...]:
    """The public names of a module, in its order, without those that another page has."""
    names = EXPORTED.get(module) or importlib.import_module(module).__all__
    return tuple(name for name in names if name not in ELSEWHERE.get(module, ()))


@cache
def public_names() -> dict[str, tuple[str, ...]]:
    """The public modules that document each public class and function, by its name."""
    found: dict[str, tuple[str, ...]] = {}
    for modules in PAGES.values():
        for module in modules:
            for name in exported(module):
                found[name] = (*found.get(name, ()), module)
    return found


def nearest_module(name: str, owner: str) -> str | None:
    """Of the modules that document `name`, the one with most of its path in common with `owner`;
    None for a name that is not public.
    """
    modules = public_names().get(name, ())
    return max(modules, key=lambda module: _common_parts(module, owner), default=None)


def _common_parts(module: str, owner: str) -> int:
    pairs = zip(module.split("."), owner.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def rst_of(markdown: str, owner: str) -> str:
    """`rst.rst_of`, with public names as links."""
    return _rst_of(markdown, lambda name: nearest_module(name, owner))


def api_page(name: str) -> str:
    modules = PAGES[name]
    blocks = []
    for module in modules:
        directives = "\n\n".join(_directive(module, each) for each in exported(module))
        blocks.append(block("{eval-rst}", f".. py:currentmodule:: {module}\n\n{directives}"))
    return page(*blocks)


def _directive(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    if not isinstance(value, type):
        kind = "function" if callable(value) else "data"
        return f".. auto{kind}:: {module}.{name}"
    if issubclass(value, msgspec.Struct):
        return _struct(module, name, value)
    kind = "exception" if issubclass(value, BaseException) else "class"
    options = [":members:"]
    if any(base.__name__.startswith("_") for base in value.__mro__):  # its methods are ours to show
        options.append(":inherited-members: object")
    if getattr(value, "_is_protocol", False):
        options.append(":undoc-members:")
    # The fields of the settings have a table of their own: as a signature they would fill a screen.
    many = is_dataclass(value) and len(value.__dataclass_fields__) > MAX_FIELDS
    signature = "(**settings)" if many else ""
    return "\n   ".join([f".. auto{kind}:: {module}.{name}{signature}", *options])


def _struct(module: str, name: str, value: type[msgspec.Struct]) -> str:
    """A struct, member by member: autodoc would evaluate its annotations for a signature, and some
    are names for type checkers only.
    """
    parts = [rst_of(inspect.getdoc(value) or "", f"{module}.{name}")]
    types: dict[str, str] = {}
    for each in reversed(value.__mro__):
        types |= vars(each).get("__annotations__", {})
    parts.extend(
        f".. py:attribute:: {field}\n   :type: {types[field]}"
        for field in value.__struct_fields__
        if not field.startswith("_")
    )
    for member, found in vars(value).items():
        if not member.startswith("_") and isinstance(found, property | FunctionType | classmethod):
            kind = "property" if isinstance(found, property) else "method"
            parts.append(f".. auto{kind}:: {module}.{name}.{member}")
    body = "\n\n".join(parts)
    return f".. py:class:: {name}\n\n{indent(body, '   ')}"
