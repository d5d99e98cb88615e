"""Why a shard stands where it does: a chain of causes, down to something a person can do. Pure.

Theory of operation. A rule looks at a shard and answers with a cause, or with nothing. The rules
stand in two tables, and the first that answers counts: `OF_THE_SHARD` says what holds the shard
itself, `OF_THE_JOB` why the job does not read it. A cause may lead on: to another shard, which is
explained in turn, to the job, or to the next rule of the same shard. A cause that leads nowhere is
the end of the chain, and says what to do. The last rule of each table always answers, so every
state has an explanation.

What cannot be seen from outside: which other consumers read, limits that an owner does not tell,
what the function does, whether the network is up.
A cause that may be any of these says so, and names where to look.

`Advice.command` is the command of `kinesis-spout` that it needs; a front end leaves out those that
it does not have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import THE_JOB, THE_NEXT_RULE, Cause, Explanation
from kinesis_spout.inspection.health import SEVERITY
from kinesis_spout.inspection.job_rules import OF_THE_JOB
from kinesis_spout.inspection.shard_rules import OF_THE_SHARD
from kinesis_spout.inspection.status import OVER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.inspection.health import Look


_NUMBERS = re.compile(r"\d[\d.,:-]*(?: (?:ms|s|min|h|d)\b)?")


def explain(look: Look, shard_id: str) -> Explanation:
    """Explain any shard, also one that nobody knows. Never fails, and always has a cause."""
    causes: list[Cause] = []
    used: set[tuple[str, str]] = set()
    about, rules = shard_id, OF_THE_SHARD
    while True:
        answers = [cause for rule in rules if (cause := rule(look, about)) is not None]
        # Parents in a circle, which no service creates, are explained by the last rule.
        cause = next((one for one in answers if (one.kind, about) not in used), answers[-1])
        used.add((cause.kind, about))
        causes.append(cause)
        if cause.leads_to is None:
            return Explanation(shard_id, tuple(causes))
        if cause.leads_to == THE_JOB:
            rules = OF_THE_JOB
        elif cause.leads_to != THE_NEXT_RULE:
            about = cause.leads_to


@dataclass(frozen=True, slots=True)
class Group:
    """Shards with the same cause and deed. `explanation` is that of the shard that is the furthest
    behind, or has to wait the longest: what is over for it is over for the others.
    """

    explanation: Explanation
    shards: tuple[str, ...]


def grouped(look: Look, among: Iterable[str] | None = None) -> list[Group]:
    """All shards that are not over (of those in `among`, unless it is None), explained, those
    together whose causes and advice differ in numbers, times and shards only; the worst groups
    first. An application without shards or state is one group.
    """
    wanted = look.now.shard_ids if among is None else among
    live = [shard for shard in wanted if look.phase(shard) not in OVER]
    shards = live or look.now.shard_ids[:1] or [look.now.application]
    if look.now.is_of_another_stream and look.now.is_known:
        return [Group(explain(look, shards[0]), tuple(shards))]  # it is so of all of them
    if not look.now.is_known:
        shards = shards[:1]
    found: dict[tuple[object, ...], list[Explanation]] = {}
    for shard in shards:
        explained = explain(look, shard)
        kinds = tuple(cause.kind for cause in explained.causes)
        deeds = tuple((one.act, _without_numbers(one.text)) for one in explained.advice())
        found.setdefault((look.health(shard), kinds, deeds), []).append(explained)

    def backlog(one: Explanation) -> tuple[int, int]:
        until_ms = max((each.until_ms or 0 for each in one.advice()), default=0)
        return until_ms, look.lag_ms(one.shard_id) or 0

    groups = [
        Group(max(members, key=backlog), tuple(one.shard_id for one in members))
        for members in found.values()
    ]
    return sorted(groups, key=lambda group: -SEVERITY[look.health(group.explanation.shard_id)])


def _without_numbers(text: str) -> str:
    """The text with the same sign for each number, duration and time."""
    return _NUMBERS.sub("#", text)
