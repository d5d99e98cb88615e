"""The state in ZooKeeper: every path that `ZookeeperPaths` gives, and the fields of its values."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

import state
from scripts.reference.markdown import anchor, block, code, page, table
from scripts.reference.words import FIELDS, NODES
from state.position import Position
from state.sequence_number import SequenceNumber
from state.store.ownership import TaskShare
from state.znodes.paths import ZookeeperPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARD, PLAN_ID, TOKEN, NAME = "shard", "1-0", "token", "name"
_NAMED = (
    (f"{SHARD}", "<shardId>"),
    (f"/{PLAN_ID}", "/<planId>"),
    ("<planId>/0", "<planId>/<task>"),
    (f"{TOKEN}-0-0", "<token>-<version>-<part>"),
    (f"runs/{NAME}", "runs/all"),
    (f"history/{NAME}", "history/<number>-<timeMs>-<kind>-<part>-of-<parts>"),
    ("0-of-1", "<i>-of-<n>"),
)
ARGUMENTS: dict[str, object] = {
    "shard_id": SHARD,
    "plan_id": PLAN_ID,
    "task": 0,
    "token": TOKEN,
    "version": 0,
    "part": 0,
    "name": NAME,
}
NARROW_CHARS = 24
BASE = "/<zookeeperRoot>/<applicationName>/<stream>"


def paths() -> list[str]:
    """Every path below the application's node, with `<name>` for what differs, in tree order."""
    there = ZookeeperPaths(root="root", application="application", stream="stream")
    fields = {field.name for field in dataclasses.fields(there)}
    found = [
        member(**_arguments(member)) if callable(member) else member
        for name, member in inspect.getmembers(there)
        if not name.startswith("_") and name not in fields
    ]
    found.append(there.run_log("0-of-1"))  # of a share; by its argument it is that of all
    below = (path.removeprefix(f"{there.base}/") for path in found)
    order = list(NODES)
    return sorted({_named(path) for path in below}, key=lambda path: (_place(order, path), path))


def structs() -> dict[str, type[msgspec.Struct]]:
    """All structs of the package `state` by name, without a leading underscore."""
    found: dict[str, type[msgspec.Struct]] = {}
    for module in pkgutil.walk_packages(state.__path__, "state."):
        for name, value in vars(importlib.import_module(module.name)).items():
            is_struct = isinstance(value, type) and issubclass(value, msgspec.Struct)
            if is_struct and value.__module__ == module.name:
                found[name.lstrip("_")] = value
    return found


def stored() -> dict[str, type[Any]]:
    """The structs (and rows) that nodes hold, and those inside of them."""
    known = structs()
    found: dict[str, type[Any]] = {}
    roots = [node.struct for node in NODES.values() if node.struct is not None]
    waiting: list[type[Any]] = [known[name] for name in dict.fromkeys([*roots, "Tasks"])]
    while waiting:
        kind = waiting.pop(0)
        name = kind.__name__.lstrip("_")
        if name not in found:
            found[name] = kind
            waiting.extend(inner for _, hint, _ in members(kind) for inner in _parts(hint))
    return found


def members(kind: type[Any]) -> list[tuple[str, Any, bool]]:
    """Stored key, type, and whether it is always there, of each field. A row's keys are its
    indexes.
    """
    if issubclass(kind, msgspec.Struct):
        return [(one.encode_name, one.type, one.required) for one in msgspec.structs.fields(kind)]
    hints = typing.get_type_hints(kind)
    return [
        (str(index), hints[name], name not in kind._field_defaults)
        for index, name in enumerate(kind._fields)
    ]


def field_names(kind: type[Any]) -> list[str]:
    if issubclass(kind, msgspec.Struct):
        return [one.name for one in msgspec.structs.fields(kind)]
    return list(kind._fields)


def znodes_page() -> str:
    tree = "\n".join([BASE, *(f"{'    ' * _depth(path)}/{_last(path)}" for path in paths())])
    rows = [
        (_breakable(path), node.content, _link(node.struct), node.writer)
        for path, node in NODES.items()
    ]
    return page(
        "## Paths",
        block("text", tree),
        table(("node", "content", "value", "written by"), rows),
        "## Values",
        *(_struct(name, kind) for name, kind in stored().items()),
    )


def _depth(path: str) -> int:
    return path.count("/") + 1


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _breakable(path: str) -> str:
    """A long path as two pieces of code, between which a line may end."""
    folder, slash, last = path.rpartition("/")
    return code(path) if len(path) <= NARROW_CHARS else f"{code(folder + slash)} {code(last)}"


def _struct(name: str, kind: type[Any]) -> str:
    words = FIELDS.get(name, {})
    is_row = not issubclass(kind, msgspec.Struct)
    rows = [
        (
            " ".join(dict.fromkeys((code(key), code(field)))),
            _json_type(hint) + ("" if required else ", optional"),
            words.get(key, ""),
        )
        for (key, hint, required), field in zip(members(kind), field_names(kind), strict=True)
    ]
    return page(
        anchor(f"znode-{name.lower()}"),
        f"### `{name}`",
        "A JSON array." if is_row else "",
        table((f"{'index' if is_row else 'key'} and field", "type", "meaning"), rows),
    )


def _link(struct: str | None) -> str:
    return "" if struct is None else f"[`{struct}`](#znode-{struct.lower()})"


def _arguments(method: Callable[..., str]) -> dict[str, object]:
    return {
        one.name: TaskShare(0, 1) if one.annotation == "TaskShare" else ARGUMENTS[one.name]
        for one in inspect.signature(method).parameters.values()
    }


def _named(path: str) -> str:
    for text, name in _NAMED:
        if text == SHARD:
            path = f"{name}{path.removeprefix(SHARD)}" if path.partition("/")[0] == SHARD else path
        else:
            path = path.replace(text, name)
    return path


def _place(order: list[str], path: str) -> int:
    return order.index(path) if path in order else len(order)


def _parts(hint: Any) -> Iterator[type[Any]]:
    """The structs and rows inside of a type."""
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        if issubclass(hint, msgspec.Struct) or hasattr(hint, "_fields"):
            yield hint
        return
    for inner in typing.get_args(hint):
        yield from _parts(inner)


def _json_type(hint: Any) -> str:
    """The type as JSON has it, with links to the structs."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_json_type(one) for one in inner if one is not types.NoneType)
    if origin is dict:
        return f"object whose values are {_plural(_json_type(inner[1]))}"
    if origin in (tuple, list):
        if origin is tuple and Ellipsis not in inner:
            return f"[{', '.join(_json_type(one) for one in inner)}]"
        return f"array of {_plural(_json_type(inner[0]))}"
    return _scalar(hint)


def _plural(kind: str) -> str:
    if kind.startswith("array"):
        return f"arrays{kind.removeprefix('array')}"
    return f"{kind}s" if kind[-1].isalpha() else kind


def _scalar(kind: type[Any]) -> str:
    if issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields"):
        return _link(kind.__name__.lstrip("_"))
    if issubclass(kind, Enum):
        *others, last = (code(member.value) for member in kind)
        return f"{', '.join(others)} or {last}"
    names: dict[type[Any], str] = {
        SequenceNumber: "sequence number",
        Position: "position",
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
    }
    return names[kind]
