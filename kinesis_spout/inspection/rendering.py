"""The one renderer: facts as sentences, by templates. Pure.

A template names facts in braces. How a fact is written follows from its name: `..._at_ms` is a time
of day in UTC, `..._ms` a duration, `shard` a short id, another number has separators. What stands
behind a colon says it otherwise:

    shard, shards   short ids      id       digits without separators
    names           a list         quoted   a text of others, on one line, cut
    position        the last digits of a sequence number
    one|more        the word that fits the number, or the length of the list
    records         a number of records
"""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Any

from kinesis_spout.config import duration
from kinesis_spout.inspection.wording import (
    joined,
    moment,
    printable,
    quoted,
    records,
    shards_named,
    short_shard,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.inspection.cause import Fact

_TEXTS = {"quoted": quoted, "position": shortened, "shard": short_shard}


def render(template: str, facts: Mapping[str, Fact], now_ms: int) -> str:
    """The template with its facts. `now_ms`: times of another day than this one get their date."""
    return _Renderer(now_ms).vformat(template, (), facts)


def likeness(template: str, facts: Mapping[str, Fact]) -> str:
    """The template with its texts alone: the same for two shards that need the same."""
    return _Likeness(0).vformat(template, (), facts)


def names_of(template: str) -> tuple[str, ...]:
    """The facts that a template names."""
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name)


class _Renderer(Formatter):
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def get_field(
        self, field_name: str, _args: object, kwargs: Mapping[str, Any]
    ) -> tuple[tuple[str, Fact], str]:
        return (field_name, kwargs[field_name]), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        name, fact = value
        return self.written(name, fact, format_spec)

    def written(self, name: str, fact: Fact, how: str) -> str:
        if "|" in how:
            count = len(fact) if isinstance(fact, tuple) else fact
            return how.split("|")[count != 1]
        if isinstance(fact, tuple):
            return shards_named(fact) if how == "shards" else printable(joined(fact))
        if isinstance(fact, str):
            how = "shard" if name == "shard" else how
            return _TEXTS.get(how, printable)(fact)
        return self._number(name, fact, how)

    def _number(self, name: str, fact: float, how: str) -> str:
        if how == "id":
            return str(fact)
        if how == "records":
            return records(int(fact))
        if name.endswith("_at_ms"):
            return moment(int(fact), self._now_ms)
        if name.endswith("_ms"):
            return duration(fact)
        return f"{fact:,}" if isinstance(fact, int) else f"{fact:g}"


class _Likeness(_Renderer):
    def written(self, name: str, fact: Fact, how: str) -> str:
        is_text = isinstance(fact, str) and name != "shard" and how not in {"shard", "position"}
        return super().written(name, fact, how) if is_text or "|" in how else "#"
