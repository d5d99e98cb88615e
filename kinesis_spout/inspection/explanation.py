"""Explains shards by the table of causes, and puts those together that need the same. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import Explanation, Kind, Role
from kinesis_spout.inspection.causes import FIRST_OF_THE_JOB, TABLE
from kinesis_spout.inspection.health import OVER, SEVERITY
from kinesis_spout.inspection.record_rules import letters_refused_besides, unresolved_besides
from kinesis_spout.inspection.table import Next

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesis_spout.inspection.cause import Cause
    from kinesis_spout.inspection.health import Look
    from kinesis_spout.inspection.table import Found, Row

_ROWS = {row.kind: row for row in TABLE}
_READ_ON = frozenset({Kind.BEHIND, Kind.UNREAD})
_BESIDES = (
    (_ROWS[Kind.LETTERS_REFUSED], letters_refused_besides),
    (_ROWS[Kind.UNRESOLVED_RECORD], unresolved_besides),
)


def explain(look: Look, shard_id: str) -> Explanation:
    """Explain any shard, also one that nobody knows. Never fails, and always has a cause."""
    chain: list[Cause] = []
    used: set[tuple[Kind, str]] = set()
    about, first = shard_id, 0
    while True:
        place, row, answer = _answer(look, about, first, used)
        used.add((row.kind, about))
        leads_to = chain[-1].subject if chain else None
        chain.append(row.cause(answer, about, look.now.now_ms, leads_to))
        then = answer.then or row.then
        if answer.shard_id is not None:
            about, first = answer.shard_id, 0
        elif then is Next.END:
            return Explanation(shard_id, tuple(chain), tuple(_remarks(look, chain)))
        else:
            first = place + 1 if then is Next.BELOW else FIRST_OF_THE_JOB


def cause_of(look: Look, kind: Kind, shard_id: str) -> Cause | None:
    """The cause of that kind alone; None where its rule finds nothing."""
    row = _ROWS[kind]
    answer = row.rule(look, shard_id)
    return None if answer is None else row.cause(answer, shard_id, look.now.now_ms, None)


def _answer(
    look: Look, about: str, first: int, used: set[tuple[Kind, str]]
) -> tuple[int, Row, Found]:
    """The first row that answers. Parents in a circle, which no service creates, are passed over
    the second time.
    """
    for place, row in enumerate(TABLE[first:], start=first):
        is_new = (row.kind, about) not in used
        if is_new and (answer := row.rule(look, about)) is not None:
            return place, row, answer
    raise AssertionError("the last row answers always")


def _remarks(look: Look, chain: list[Cause]) -> Iterator[Cause]:
    """The unresolved records of a shard that has more to read, and so is held by none of them."""
    about = chain[-1].shard_id
    kinds = {one.kind for one in chain if one.shard_id == about}
    is_caught_up = any(one.kind is Kind.CAUGHT_UP and one.role is Role.EFFECT for one in chain)
    if not (kinds & _READ_ON or is_caught_up) or Kind.LETTERS_REFUSED in kinds:
        return
    for row, rule in _BESIDES:
        if row.kind not in kinds and (answer := rule(look, about)) is not None:
            yield row.cause(answer, about, look.now.now_ms, None)


@dataclass(frozen=True, slots=True)
class Group:
    """Shards with the same causes and actions. `explanation` is that of the shard that is the
    furthest behind, or has to wait the longest: what is over for it is over for the others.
    """

    explanation: Explanation
    shards: tuple[str, ...]


def grouped(look: Look, among: Iterable[str] | None = None) -> list[Group]:
    """All shards that are not over (of those in `among`, unless it is None), explained, those
    together whose causes and actions differ in numbers, times and shards only; the worst groups
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
        kinds = tuple(cause.kind for cause in explained.chain)
        actions = tuple((one.kind, one.likeness) for one in explained.actions())
        found.setdefault((look.health(shard), kinds, actions), []).append(explained)

    def backlog(one: Explanation) -> tuple[int, int]:
        until_ms = max((each.until_ms or 0 for each in one.actions()), default=0)
        return until_ms, look.lag_ms(one.shard_id) or 0

    groups = [
        Group(max(members, key=backlog), tuple(one.shard_id for one in members))
        for members in found.values()
    ]
    return sorted(groups, key=lambda group: -SEVERITY[look.health(group.explanation.shard_id)])
