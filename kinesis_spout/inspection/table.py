"""How the table of causes is written, and how a row and facts become a cause. Pure.

A rule looks at a shard and answers with facts, or with None. Its row says them:

    # Why the row stands where it stands.
    == <kind>: <head>, <role>, <where the chain continues>
        [<conditions>] <a sentence>
        [<conditions>] fix <what kind>: <an imperative> #<resolves> $ <command>
        [<conditions>] or <<section>>

An indented line continues the one above it. A sentence or an action is there where the facts that
it names in braces are there, and its conditions hold. `[stage=due|waits, fault, !is_first]`: a fact
with one of these values, one that is there, one that is not. The first sentence names the cause.
`first` instead of `fix`: the action is urgent; `or`: an alternative. `:: <section>` begins lines
that several rows have.

How a fact is written follows from its name: `..._at_ms` is a time of day in UTC, `..._ms` a
duration, `shard` a short id; another number has separators. Behind a colon stands another way:

    shard, shards   short ids      id       digits without separators
    names           a list         quoted   a text of others, on one line, cut
    position        the last digits of a sequence number
    one|more        the word that fits the number, or the length of the list
    records         a number of records
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kinesis_spout.config import duration
from kinesis_spout.inspection import wording
from kinesis_spout.inspection.cause import Action, ActionKind, Cause, Kind, Noun, Role, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kinesis_spout.inspection.cause import Fact
    from kinesis_spout.inspection.health import Look

_ACTION = re.compile(
    r"(?P<word>first|first or|or|fix) (?P<kind>[a-z]+): (?P<text>.*?)"
    r"(?: #(?P<resolves>[\w{}]+))?(?: \$ (?P<command>.*))?"
)
_SECTION = re.compile(r"(?:(or) )?<([a-z ]+)>")
_NAME = re.compile(r"\{(\w+)")
_TEXTS = {"quoted": wording.quoted, "position": wording.shortened, "shard": wording.short_shard}


class Next(StrEnum):
    """Where the chain continues behind a cause: nowhere, in the rows below, or in those about the
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
    given: Mapping[str, Fact | None] = MappingProxyType({}),
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


class Line(NamedTuple):
    """A sentence, or with a `kind` an action.

    - `when`: by fact, the values of which it must have one; None: it must be there; an empty set:
      it must not.
    - `command`: words, of which one in braces is a fact; of several texts, each is a `--shard`.
    """

    template: str
    when: Mapping[str, frozenset[str] | None]
    kind: ActionKind | None = None
    word: str = ""
    resolves: str = ""
    command: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The facts that the template names."""
        return _NAME.findall(self.template)

    def fits(self, facts: Mapping[str, Fact]) -> bool:
        return all(name in facts for name in self.names) and all(
            (name in facts) == (wanted is None) if not wanted else facts.get(name) in wanted
            for name, wanted in self.when.items()
        )

    def written(self, facts: Mapping[str, Fact], now_ms: int, *, is_likeness: bool = False) -> str:
        """The sentence. Times of another day than `now_ms` get their date. `is_likeness`: without
        numbers, times and ids: the same for two shards that need the same.
        """
        return self.template.format_map(
            {name: _Written(name, one, now_ms, is_likeness) for name, one in facts.items()}
        )

    def action(self, kind: ActionKind, facts: Mapping[str, Fact], now_ms: int) -> Action:
        times = (facts[name] for name in self.names if name.endswith("_at_ms"))
        until_ms = next(times, None) if kind is ActionKind.WAIT else None
        return Action(
            kind=kind,
            text=self.written(facts, now_ms),
            command=tuple(self._words(facts)),
            until_ms=until_ms if isinstance(until_ms, int) else None,
            resolves=self.resolves.format_map(facts),
            is_urgent="first" in self.word,
            is_alternative="or" in self.word,
            likeness=self.written(facts, now_ms, is_likeness=True),
        )

    def _words(self, facts: Mapping[str, Fact]) -> Iterator[str]:
        for word in self.command:
            several = facts.get(word.strip("{}"))
            if isinstance(several, tuple):
                yield from (part for one in several for part in ("--shard", one))
            else:
                yield word.format_map(facts)


class _Written(NamedTuple):
    """A fact in a template."""

    name: str
    fact: Any
    now_ms: int
    is_likeness: bool

    def __format__(self, how: str) -> str:
        name, fact, now_ms, is_likeness = self
        if "|" in how:
            return wording.are(len(fact) if isinstance(fact, tuple) else fact, *how.split("|"))
        how = "shard" if name == "shard" else how
        if is_likeness and (not isinstance(fact, str) or how in {"shard", "position"}):
            return "#"
        if isinstance(fact, tuple):
            said = wording.shards_named if how == "shards" else wording.joined
            return wording.printable(said(fact))
        if isinstance(fact, str):
            return _TEXTS.get(how, wording.printable)(fact)
        if how:
            return str(fact) if how == "id" else wording.records(fact)
        if name.endswith("_at_ms"):
            return wording.moment(fact, now_ms)
        if name.endswith("_ms"):
            return duration(fact)
        return f"{fact:,}" if isinstance(fact, int) else f"{fact:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of cause: its rule, the word that introduces it, what it is in a chain, where the
    chain continues, its sentences and actions.
    """

    kind: Kind
    rule: Rule
    head: str
    role: Role
    then: Next
    lines: tuple[Line, ...]

    def cause(self, answer: Found, shard_id: str, now_ms: int, leads_to: Subject | None) -> Cause:
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
            sentences=tuple(one.written(known, now_ms) for one in lines if not one.kind),
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
    if (section := _SECTION.fullmatch(text)) is not None:
        for one in sections[section[2]]:
            yield one._replace(when={**one.when, **when}, word=section[1] or one.word)
    elif (action := _ACTION.fullmatch(text)) is not None:
        kind, command = ActionKind(action["kind"]), (action["command"] or "").split()
        resolves = action["resolves"] or ""
        yield Line(action["text"], when, kind, action["word"], resolves, tuple(command))
    else:
        yield Line(text, when)


def _condition(text: str) -> tuple[str, frozenset[str] | None]:
    name, has_values, values = text.partition("=")
    if has_values:
        return name, frozenset(values.split("|"))
    return name.removeprefix("!"), frozenset() if name.startswith("!") else None
