"""A cause, and what to do about it, as values; and how the table of causes is written. Pure.

A shard is explained by a chain: from the shard, over what it waits for, down to the root. Read the
other way round, each cause leads to the next one. `Explanation.causes` has them in the order in
which a person reads them: what holds the shard, what follows from it, and side remarks.

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
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kinesis_spout.config import duration
from kinesis_spout.inspection import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kinesis_spout.inspection.health import ShardLook

_ACTION = re.compile(
    r"(?P<word>first|first or|or|fix) (?P<kind>[a-z]+): (?P<text>.*?)"
    r"(?: #(?P<resolves>[\w{}]+))?(?: \$ (?P<command>.*))?"
)
_SECTION = re.compile(r"(?:(or) )?<([a-z ]+)>")
_NAME = re.compile(r"\{(\w+)")
_TEXTS = {"quoted": wording.quoted, "position": wording.shortened, "shard": wording.short_shard}

Fact: TypeAlias = bool | int | float | str | tuple[str, ...]
"""Times (`..._at_ms`) are epoch milliseconds, durations (`..._ms`) milliseconds; counts are ints;
ids, names and quoted errors are texts. A fact that is false or not known is not there.
"""


class Kind(StrEnum):
    """The kinds of cause. `kinesis_spout.inspection.explanation` has a row for each."""

    OTHER_STREAM = "other stream"
    NO_APPLICATION = "no application"
    NOT_BEGUN = "not begun"
    NOT_TRACKED = "not tracked"
    RECORDS_EXPIRED = "records expired"
    WAITS_FOR_PARENTS = "waits for parents"
    NOT_SUBSCRIBED = "not subscribed"
    NO_ANSWERS = "no answers"
    CAUGHT_UP = "caught up"
    SET_BACK = "set back"
    HELD_BY_ORDER = "held by order"
    BEHIND = "behind"
    UNRESOLVED_RECORD = "unresolved record"
    UNREAD = "unread"
    PAUSED = "paused"
    KINESIS_REFUSES = "kinesis refuses"
    ZOOKEEPER_REFUSES = "zookeeper refuses"
    CRASH_LOOP = "crash loop"
    PROCESS_HALTED = "process halted"
    NOT_RUNNING = "not running"
    NOT_ASSIGNED = "not assigned"
    READS_FAIL = "reads fail"
    PROGRAM_WAITS = "program waits"
    LETTERS_REFUSED = "letters refused"
    OUTAGE = "outage"
    UNRESOLVED_LIMIT = "unresolved limit"
    BATCH = "batch under way"
    KINESIS_SILENT = "kinesis silent"
    NOT_ASKED = "not asked"
    NOT_VISIBLE = "not visible"


class Noun(StrEnum):
    SHARD = "shard"
    APPLICATION = "application"
    TASK = "consumer task"
    PROCESS = "process"
    BATCH = "batch"
    RECORD = "record"


class Subject(NamedTuple):
    """What a cause is about: `shard shardId-000000000001`, `consumer task 1 of 2`."""

    noun: Noun
    name: str


class Role(StrEnum):
    """What a cause is in its chain. A root that is no more than an effect or a remark stands for
    itself.
    """

    HOLDS = "holds"
    EFFECT = "effect"
    REMARK = "remark"


class ActionKind(StrEnum):
    NOTHING = "nothing"
    WAIT = "wait"
    START = "start"
    RESUME = "resume"
    LOOK = "look"
    CHANGE = "change"
    RUN = "run"


# What removes a cause comes before what sets the application going, and that before waiting.
_RANKS = {ActionKind.START: 1, ActionKind.WAIT: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do: an imperative sentence without its full stop, and where a command of
    `kinesis-spout` does it, its arguments, without the options that say where the application is.

    - `until_ms`: until when to wait, where that is known.
    - `resolves`: what it resolves, where another cause of the chain may ask for the same: of these
      actions, the first alone counts.
    - `is_urgent`: it comes before the fix of the root, which may take too long, or does not help
      without it.
    - `is_alternative`: to the action before it.
    - `likeness`: the sentence without its numbers, times and ids: the same for shards that need the
      same.
    """

    kind: ActionKind
    text: str
    command: tuple[str, ...] = ()
    until_ms: int | None = None
    resolves: str = ""
    is_urgent: bool = False
    is_alternative: bool = False
    likeness: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause. `shard_id`: the shard at whose explanation it was found. `leads_to`: what it keeps
    waiting; None for the shard that is explained. `head`: the word that it is introduced with.
    `sentences`: the facts as text, each without its full stop; the first names the cause.
    """

    kind: Kind
    subject: Subject
    shard_id: str
    facts: Mapping[str, Fact]
    role: Role
    head: str
    sentences: tuple[str, ...]
    actions: tuple[Action, ...] = ()
    leads_to: Subject | None = None

    @property
    def text(self) -> str:
        first, *others = self.sentences
        return " ".join([f"{first}.", *(f"{one[:1].upper()}{one[1:]}." for one in others)])

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "subject": self.subject._asdict(),
            "shardId": self.shard_id,
            "facts": {_camel(name): fact for name, fact in self.facts.items()},
            "leadsTo": None if self.leads_to is None else self.leads_to._asdict(),
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one shard stands where it does. `chain`: from the shard down to the root. `remarks`: what
    else there is to say of the shard.
    """

    shard_id: str
    chain: tuple[Cause, ...]
    remarks: tuple[Cause, ...] = ()

    @property
    def root(self) -> Cause:
        return self.chain[-1]

    @property
    def causes(self) -> tuple[Cause, ...]:
        """In the order in which they are read."""
        return tuple(cause for _, cause in self.introduced())

    def introduced(self) -> list[tuple[str, Cause]]:
        """The causes as they are read, each with the word that introduces it: first what the first
        action removes, or the root, with its own word; `So` for what follows from the cause above
        it; `Also` for remarks.
        """
        first = self.actions()[0]
        held = [one for one in self.chain if one.role is Role.HOLDS and first in one.actions]
        lead = held[-1] if held else self.root
        words = {Role.EFFECT: "So", Role.REMARK: "Also"}
        others = [(words.get(one.role, one.head), one) for one in self.chain[::-1]]
        others = [pair for pair in others if pair[1] is not lead]
        others += [("Also", one) for one in self.remarks]
        return [(lead.head, lead), *sorted(others, key=lambda pair: pair[0] == "Also")]

    def actions(self) -> list[Action]:
        """What to do: what is urgent first, then what removes a cause, what sets the application
        going, and what is to be waited for, of each the root's first. The actions of one cause stay
        in their order. The end of a pause comes before all, as nothing else helps while it lasts.
        """
        ranked: list[tuple[tuple[bool, bool, int], Action]] = []
        for cause in (*self.chain[::-1], *self.remarks):
            rank = 0
            for one in cause.actions:
                rank = max(rank, 0 if one.is_alternative else _RANKS.get(one.kind, 0))
                ranked.append(((one.kind is not ActionKind.RESUME, not one.is_urgent, rank), one))
        kept: list[Action] = []
        resolved = set[str]()
        for one in dict.fromkeys(one for _, one in sorted(ranked, key=lambda pair: pair[0])):
            # Nobody waits for two things: the root's is for all.
            resolves = "wait" if one.kind is ActionKind.WAIT else one.resolves
            if not resolves or resolves not in resolved:
                resolved.add(resolves)
                kept.append(one)
        return [one for one in kept if one.kind is not ActionKind.NOTHING] or kept[:1]


def introduced(actions: Sequence[Action]) -> list[tuple[str, Action]]:
    """Actions in their order, each with the word that introduces it."""
    first = "OK" if actions and actions[0].kind is ActionKind.NOTHING else "Fix"
    return [
        ("Or" if one.is_alternative else "Then" if number else first, one)
        for number, one in enumerate(actions)
    ]


def _camel(name: str) -> str:
    """`since_at_ms` is `sinceMs`: a time has no other name in JSON."""
    first, *words = name.replace("_at_ms", "_ms").split("_")
    return first + "".join(word.title() for word in words)


# the table ----------------------------------------------------------------------------------------
class Next(StrEnum):
    """Where the chain continues behind a cause: nowhere, in the rows below, or in those about the
    job.
    """

    END = "end"
    BELOW = "below"
    JOB = "job"


class Found:
    """The answer of a rule: the facts that are known and not false. What else is None is as the row
    says it. `shard_id`: another shard, which is explained next.
    """

    def __init__(
        self,
        given: Mapping[str, Fact | None] = MappingProxyType({}),
        *,
        subject: Subject | None = None,
        then: Next | None = None,
        shard_id: str | None = None,
        role: Role | None = None,
        **more: Fact | None,
    ) -> None:
        facts = (*given.items(), *more.items())
        self.facts = {name: one for name, one in facts if one is not None and one is not False}
        self.subject, self.then, self.shard_id, self.role = subject, then, shard_id, role


Rule: TypeAlias = "Callable[[ShardLook], Found | None]"


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
            return wording.visible(said(fact))
        if isinstance(fact, str):
            return _TEXTS.get(how, wording.visible)(fact)
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
    lines: Sequence[Line]

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
    rows: list[Row] = []
    lines: list[Line] = []
    for line in re.sub(r"\n {8}", " ", text).splitlines():
        if line.startswith(":: "):
            lines = sections[line[3:]] = []
        elif line.startswith("== "):
            name, _, rest = line[3:].partition(": ")
            head, *words = rest.split(", ")
            role = next((one for one in Role if one in words), Role.HOLDS)
            then = next((one for one in Next if one in words), Next.END)
            lines = []
            rows.append(Row(Kind(name), rules[Kind(name)], head, role, then, lines))
        elif line.startswith("    "):
            lines += _read(line.strip(), sections)
    return tuple(rows)


def _read(line: str, sections: Mapping[str, list[Line]]) -> Iterator[Line]:
    conditions, _, text = line[1:].partition("] ") if line.startswith("[") else ("", "", line)
    when: dict[str, frozenset[str] | None] = {}
    for condition in filter(None, conditions.split(", ")):
        name, has_values, values = condition.partition("=")
        without = frozenset[str]() if name.startswith("!") else None
        when[name.removeprefix("!")] = frozenset(values.split("|")) if has_values else without
    if (section := _SECTION.fullmatch(text)) is not None:
        for one in sections[section[2]]:
            yield one._replace(when={**one.when, **when}, word=section[1] or one.word)
    elif (action := _ACTION.fullmatch(text)) is not None:
        kind, command = ActionKind(action["kind"]), (action["command"] or "").split()
        resolves = action["resolves"] or ""
        yield Line(action["text"], when, kind, action["word"], resolves, tuple(command))
    else:
        yield Line(text, when)
