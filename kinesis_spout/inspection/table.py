"""How the table of causes is written, and how a cause is made of a row and facts. Pure.

A rule looks at a shard and answers with facts, or with None. Its row says them:

    # Why the row stands where it stands.
    == <kind>: <head>, <role>, <where the chain goes on>
        [<conditions>] <a sentence>
        [<conditions>] fix <what kind>: <an imperative> @<until> #<resolves> $ <command>
        [<conditions>] <words before> <<section>>

A line that goes on is indented more. A sentence, or an action, is there where the facts that it
names in braces are there, and its conditions hold: `[stage=due|waits, fault, !is_first]`: a fact
with one of these values, one that is there, one that is not. The first sentence names the cause.
`first` before the kind of an action: it is urgent; `or`: an alternative. `:: <section>` begins
lines that several rows have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from kinesis_spout.inspection.cause import Action, ActionKind, Cause, Kind, Noun, Role, Subject
from kinesis_spout.inspection.rendering import likeness, names_of, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kinesis_spout.inspection.cause import Fact
    from kinesis_spout.inspection.health import Look

_INCLUDE = re.compile(r"(.*?)<([a-z ]+)>")
_ACTION = re.compile(
    r"(?P<words>(?:(?:first|or|fix) )+)(?P<kind>[a-z]+): (?P<text>.*?)"
    r"(?: @(?P<until>\w+))?(?: #(?P<resolves>[\w{}]+))?(?: \$ (?P<command>.*))?"
)
_NONE: Mapping[str, Fact | None] = MappingProxyType({})


class Next(StrEnum):
    """Where the chain goes on behind a cause: nowhere, in the rows below, or in those about the
    job.
    """

    END = "end"
    BELOW = "below"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a rule. What is None is as the row says it. `shard_id`: another shard, which is
    explained next.
    """

    facts: Mapping[str, Fact]
    subject: Subject | None = None
    then: Next | None = None
    shard_id: str | None = None
    role: Role | None = None


def found(
    given: Mapping[str, Fact | None] = _NONE,
    *,
    subject: Subject | None = None,
    then: Next | None = None,
    shard_id: str | None = None,
    role: Role | None = None,
    **more: Fact | None,
) -> Found:
    """An answer with the facts that are known and not false."""
    facts = {**given, **more}
    known = {name: one for name, one in facts.items() if one is not None and one is not False}
    return Found(known, subject, then, shard_id, role)


Rule: TypeAlias = "Callable[[Look, str], Found | None]"
Condition: TypeAlias = "Mapping[str, frozenset[str] | None]"


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence, or with a `kind` an action.

    - `when`: by fact, the values of which it must have one; None: it must be there; an empty set:
      it must not.
    - `command`: words, of which one in braces is a fact; of several texts, each is a `--shard`.
    """

    template: str
    when: Condition
    kind: ActionKind | None = None
    until: str = ""
    resolves: str = ""
    command: tuple[str, ...] = ()
    is_urgent: bool = False
    is_alternative: bool = False

    def fits(self, facts: Mapping[str, Fact]) -> bool:
        return all(name in facts for name in names_of(self.template)) and all(
            (name in facts) == (wanted is None) if not wanted else facts.get(name) in wanted
            for name, wanted in self.when.items()
        )

    def action(self, kind: ActionKind, facts: Mapping[str, Fact], now_ms: int) -> Action:
        until_ms = facts.get(self.until)
        return Action(
            kind=kind,
            text=render(self.template, facts, now_ms),
            command=tuple(self._words(facts)),
            until_ms=until_ms if isinstance(until_ms, int) else None,
            resolves=self.resolves.format_map(facts),
            is_urgent=self.is_urgent,
            is_alternative=self.is_alternative,
            likeness=likeness(self.template, facts),
        )

    def _words(self, facts: Mapping[str, Fact]) -> Iterator[str]:
        for word in self.command:
            several = facts.get(word.strip("{}"))
            if isinstance(several, tuple):
                yield from (part for one in several for part in ("--shard", one))
            else:
                yield word.format_map(facts)

    def included(self, when: Condition, before: str) -> Line:
        """As a line of a section, with the conditions and words that stand before its name."""
        words = before.removeprefix("or ")
        return replace(
            self,
            template=words + self.template,
            when={**self.when, **when},
            is_alternative=self.is_alternative or words != before,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of cause: its rule, the word that introduces it, what it is in a chain, where the
    chain goes on, its sentences and actions.
    """

    kind: Kind
    rule: Rule
    head: str
    role: Role
    then: Next
    lines: tuple[Line, ...]

    def written(self, answer: Found, shard_id: str, now_ms: int, leads_to: Subject | None) -> Cause:
        """The cause, with its text."""
        known = {**answer.facts, "shard": shard_id}
        lines = [one for one in self.lines if one.fits(known)]
        return Cause(
            kind=self.kind,
            subject=answer.subject or Subject(Noun.SHARD, shard_id),
            shard_id=shard_id,
            facts=answer.facts,
            role=answer.role or self.role,
            head=self.head,
            sentences=tuple(render(one.template, known, now_ms) for one in lines if not one.kind),
            actions=tuple(one.action(one.kind, known, now_ms) for one in lines if one.kind),
            leads_to=leads_to,
        )


def rows_of(text: str, rules: Mapping[Kind, Rule]) -> tuple[Row, ...]:
    """The rows that a text has, in its order."""
    sections: dict[str, list[Line]] = {}
    rows: list[tuple[str, list[Line]]] = []
    lines: list[Line] = []
    for line in re.sub(r"\n {8}", " ", text).splitlines():
        if line.startswith(":: "):
            lines = sections[line[3:]] = []
        elif line.startswith("== "):
            lines = []
            rows.append((line[3:], lines))
        elif line.startswith("    "):
            lines += _read(line.strip(), sections)
    return tuple(_row(header, tuple(lines), rules) for header, lines in rows)


def _row(header: str, lines: tuple[Line, ...], rules: Mapping[Kind, Rule]) -> Row:
    name, _, rest = header.partition(": ")
    head, *words = rest.split(", ")
    role = next((one for one in Role if one in words), Role.HOLDS)
    then = next((one for one in Next if one in words), Next.END)
    return Row(Kind(name), rules[Kind(name)], head, role, then, lines)


def _read(line: str, sections: Mapping[str, list[Line]]) -> Iterator[Line]:
    conditions, _, text = line[1:].partition("] ") if line.startswith("[") else ("", "", line)
    when = dict(map(_condition, conditions.split(", "))) if conditions else {}
    if (include := _INCLUDE.fullmatch(text)) is not None:
        yield from (one.included(when, include[1]) for one in sections[include[2]])
    elif (action := _ACTION.fullmatch(text)) is not None:
        yield Line(
            action["text"],
            when,
            ActionKind(action["kind"]),
            until=action["until"] or "",
            resolves=action["resolves"] or "",
            command=tuple((action["command"] or "").split()),
            is_urgent="first" in action["words"],
            is_alternative="or " in action["words"],
        )
    else:
        yield Line(text, when)


def _condition(text: str) -> tuple[str, frozenset[str] | None]:
    name, has_values, values = text.partition("=")
    if has_values:
        return name, frozenset(values.split("|"))
    return name.removeprefix("!"), frozenset() if name.startswith("!") else None
