"""The fields of `SpoutConfig`: types and defaults from the class, meanings from its docstring."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields
from typing import Any

from kinesis_spout.config import AwsConfig, ReadRate
from kinesis_spout.options import SHARED, meaning_of
from kinesis_spout.spout import SpoutConfig
from scripts.reference.markdown import REQUIRED, code, page, plain, table
from scripts.reference.words import SPOUT_FIELDS
from state.retry_policy import RetryPolicy


def spout_config_page() -> str:
    parts = [
        table(
            ("field", "type", "default", "meaning"),
            [
                (code(field.name), code(field.type), _default(field), _meaning(field.name))
                for field in fields(SpoutConfig)
            ],
        )
    ]
    for kind in (RetryPolicy, ReadRate, AwsConfig):
        rows = [(code(one.name), code(one.type), _default(one)) for one in fields(kind)]
        parts.append(f"## `{kind.__name__}`\n\n{table(('field', 'type', 'default'), rows)}")
    return page(*parts)


def documented() -> dict[str, str]:
    """The meaning of each field that the class's docstring tells: its part of a list item, or the
    whole item where the item does not come apart.
    """
    found: dict[str, str] = {}
    for item in re.split(r"^- ", inspect.getdoc(SpoutConfig) or "", flags=re.MULTILINE)[1:]:
        text = " ".join(item.split())
        clauses = re.split(r"; (?=`\w+`: )", text.rstrip("."))
        for clause in clauses:
            head, colon, meaning = clause.partition(": ")
            names = re.findall(r"`(\w+)`", head)
            listed = colon and not re.sub(r"`\w+`(?:, | and )?", "", head)
            for name in names if listed else re.findall(r"`(\w+)`", clause):
                found.setdefault(name, meaning if listed else clause)
    return {
        name: found[name] for name in found if name in {one.name for one in fields(SpoutConfig)}
    }


def _meaning(name: str) -> str:
    """The class's, else one of ours, else the option's."""
    told, shared = documented(), name.removesuffix("_s")
    if name not in told and name not in SPOUT_FIELDS and shared in SHARED:
        return plain(meaning_of(shared))
    return plain(told[name]) if name in told else SPOUT_FIELDS.get(name, "")


def _default(field: Field[Any]) -> str:
    value = field.default
    if value is MISSING and field.default_factory is not MISSING:
        value = field.default_factory()
    if value is MISSING:
        return REQUIRED
    if callable(value):
        return code(getattr(value, "__name__", value))
    is_config = hasattr(value, "__dataclass_fields__")
    return code(f"{type(value).__name__}()" if is_config else repr(value))
