"""A cause, and what to do about it, as values. Pure.

A shard is explained by a chain: from the shard, over what it waits for, down to the root. Read the
other way round, each cause leads to the next one. `Explanation.causes` has them in the order in
which a person reads them: what holds the shard, what follows from it, and side remarks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Fact: TypeAlias = bool | int | float | str | tuple[str, ...]
"""Times (`..._at_ms`) are epoch milliseconds, durations (`..._ms`) milliseconds; counts are ints;
ids, names and quoted errors are texts. A fact that is false or not known is not there.
"""


class Kind(StrEnum):
    """The kinds of cause. `kinesis_spout.inspection.causes` has a row for each."""

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

    def actions(self, commands: Collection[str] | None = None) -> list[Action]:
        """What to do, without what needs a command that is not among `commands` (None: all are
        there): what is urgent first, then what removes a cause, what sets the application going,
        and what is to be waited for, of each the root's first. The actions of one cause stay in
        their order. The end of a pause comes before all, as nothing else helps while it lasts.
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
            is_there = commands is None or not one.command or one.command[0] in commands
            # Nobody waits for two things: the root's is for all.
            resolves = "wait" if one.kind is ActionKind.WAIT else one.resolves
            if is_there and (not resolves or resolves not in resolved):
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
