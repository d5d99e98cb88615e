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
from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import Action, ActionKind, Cause, Kind, Noun, Role, Subject
from kinesis_spout.inspection.rendering import likeness, names_of, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kinesis_spout.inspection.cause import Fact
    from kinesis_spout.inspection.health import Look

_CONDITIONS = re.compile(r"(?:\[(?P<when>[^]]*)\] )?(?P<text>.*)")
_INCLUDE = re.compile(r"(?P<before>.*?)<(?P<section>[a-z ]+)>")
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


@dataclass(frozen=True, slots=True)
class Sentence:
    """`when`: by fact, the values of which it must have one; None: it must be there; an empty set:
    it must not.
    """

    template: str
    when: Mapping[str, frozenset[str] | None]

    def fits(self, facts: Mapping[str, Fact]) -> bool:
        return all(name in facts for name in names_of(self.template)) and all(
            name in facts
            if wanted is None
            else facts.get(name) in wanted
            if wanted
            else name not in facts
            for name, wanted in self.when.items()
        )


@dataclass(frozen=True, slots=True)
class ActionRow:
    """`command`: words, of which one in braces is a fact; of several texts, each is a `--shard`."""

    sentence: Sentence
    kind: ActionKind
    until: str
    resolves: str
    command: tuple[str, ...]
    is_urgent: bool
    is_alternative: bool

    def written(self, facts: Mapping[str, Fact], now_ms: int) -> Action:
        until_ms = facts.get(self.until)
        return Action(
            kind=self.kind,
            text=render(self.sentence.template, facts, now_ms),
            command=tuple(self._words(facts)),
            until_ms=until_ms if isinstance(until_ms, int) else None,
            resolves=self.resolves.format_map(facts),
            is_urgent=self.is_urgent,
            is_alternative=self.is_alternative,
            likeness=likeness(self.sentence.template, facts),
        )

    def _words(self, facts: Mapping[str, Fact]) -> Iterable[str]:
        for word in self.command:
            several = facts.get(word.strip("{}"))
            if isinstance(several, tuple):
                yield from (part for one in several for part in ("--shard", one))
            else:
                yield word.format_map(facts)


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of cause: its rule, the word that introduces it, what it is in a chain, where the
    chain goes on, its sentences and its actions.
    """

    kind: Kind
    rule: Callable[[Look, str], Found | None]
    head: str
    role: Role
    then: Next
    says: tuple[Sentence, ...]
    does: tuple[ActionRow, ...]

    def written(self, answer: Found, shard_id: str, now_ms: int, leads_to: Subject | None) -> Cause:
        """The cause, with its text."""
        known = {**answer.facts, "shard": shard_id}
        return Cause(
            kind=self.kind,
            subject=answer.subject or Subject(Noun.SHARD, shard_id),
            shard_id=shard_id,
            facts=answer.facts,
            role=answer.role or self.role,
            head=self.head,
            sentences=tuple(
                render(one.template, known, now_ms) for one in self.says if one.fits(known)
            ),
            actions=tuple(
                one.written(known, now_ms) for one in self.does if one.sentence.fits(known)
            ),
            leads_to=leads_to,
        )


def rows_of(
    text: str, rules: Mapping[Kind, Callable[[Look, str], Found | None]]
) -> tuple[Row, ...]:
    """The rows that a text has, in its order."""
    sections: dict[str, list[Sentence | ActionRow]] = {}
    rows: list[tuple[str, list[Sentence | ActionRow]]] = []
    lines: list[Sentence | ActionRow] = []
    for line in re.sub(r"\n {8}", " ", text).splitlines():
        if line.startswith(":: "):
            lines = sections[line[3:]] = []
        elif line.startswith("== "):
            lines = []
            rows.append((line[3:], lines))
        elif line.startswith("    "):
            lines += _read(line.strip(), sections)
    return tuple(_row(header, lines, rules) for header, lines in rows)


def _row(
    header: str,
    lines: list[Sentence | ActionRow],
    rules: Mapping[Kind, Callable[[Look, str], Found | None]],
) -> Row:
    name, _, rest = header.partition(": ")
    head, *words = rest.split(", ")
    kind = Kind(name)
    return Row(
        kind=kind,
        rule=rules[kind],
        head=head,
        role=next((one for one in Role if one in words), Role.HOLDS),
        then=next((one for one in Next if one in words), Next.END),
        says=tuple(one for one in lines if isinstance(one, Sentence)),
        does=tuple(one for one in lines if isinstance(one, ActionRow)),
    )


def _read(
    line: str, sections: Mapping[str, list[Sentence | ActionRow]]
) -> Iterable[Sentence | ActionRow]:
    conditions = _CONDITIONS.fullmatch(line)
    if conditions is None:
        raise ValueError(line)
    when, text = _when(conditions["when"]), conditions["text"]
    if (include := _INCLUDE.fullmatch(text)) is not None:
        for one in sections[include["section"]]:
            yield _with(one, when, include["before"])
    elif (action := _ACTION.fullmatch(text)) is not None:
        yield ActionRow(
            sentence=Sentence(action["text"], when),
            kind=ActionKind(action["kind"]),
            until=action["until"] or "",
            resolves=action["resolves"] or "",
            command=tuple((action["command"] or "").split()),
            is_urgent="first" in action["words"],
            is_alternative="or" in action["words"].split(),
        )
    else:
        yield Sentence(text, when)


def _with(
    one: Sentence | ActionRow, when: Mapping[str, frozenset[str] | None], before: str
) -> Sentence | ActionRow:
    """A line of a section, with the conditions and the words that stand before its name."""
    sentence = one if isinstance(one, Sentence) else one.sentence
    words = before.removeprefix("or ")
    given = Sentence(words + sentence.template, {**sentence.when, **when})
    if isinstance(one, Sentence):
        return given
    return replace(one, sentence=given, is_alternative=one.is_alternative or words != before)


def _when(text: str | None) -> Mapping[str, frozenset[str] | None]:
    found: dict[str, frozenset[str] | None] = {}
    for one in (text or "").split(", ") if text else ():
        name, has_value, values = one.partition("=")
        if has_value:
            found[name] = frozenset(values.split("|"))
        else:
            found[name.removeprefix("!")] = frozenset() if name.startswith("!") else None
    return found
