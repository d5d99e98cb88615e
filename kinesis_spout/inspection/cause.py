"""A cause and the advice that ends a chain of them, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kinesis_spout.inspection.health import Look

THE_JOB = "the job"
THE_NEXT_RULE = "the next rule"


class Act(StrEnum):
    """What an advice asks for."""

    NOTHING = "nothing"
    WAIT = "wait"
    START = "start"
    RESUME = "resume"
    LOOK = "look"
    CHANGE = "change"
    RUN = "run"


# What removes a cause comes before what sets the application going, and that before waiting.
_RANKS = {Act.RESUME: 1, Act.START: 2, Act.WAIT: 3}
_ALTERNATIVE = "or, "


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do. `until_ms`: until when to wait, where that is known. `is_urgent`: it comes
    before what mends the root, which may take too long, or does not help without it.

    Of several, the one that removes the cause comes first. An alternative says when it is one, and
    stands behind what it is an alternative to: `or, if the record is not needed: ...`.

    `arguments`: those of `kinesis-spout` that do it, without the options that say where the
    application is; empty where no command does. A front end adds these options.

    `mends`: what it mends, where another cause of the chain may advise on the same: of these
    advices, the first alone counts.
    """

    act: Act
    text: str
    arguments: tuple[str, ...] = ()
    mends: str = ""
    until_ms: int | None = None
    is_urgent: bool = False

    @property
    def command(self) -> str | None:
        """The name of the command that it needs."""
        return self.arguments[0] if self.arguments else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A link of the chain. `leads_to`: a shard, `THE_JOB`, `THE_NEXT_RULE`, or None at its end."""

    kind: str
    about: str
    says: str
    advice: tuple[Advice, ...] = ()
    leads_to: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The chain of one shard, from the shard down to the root."""

    shard_id: str
    causes: tuple[Cause, ...]

    @property
    def root(self) -> Cause:
        return self.causes[-1]

    def advice(self, commands: Collection[str] | None = None) -> list[Advice]:
        """What to do, without what needs a command that is not among `commands` (None: all are
        there): what is urgent first, then what removes a cause, what sets the application going,
        and what is to be waited for, of each the root's first. The advice of one cause stays in its
        order.
        """
        ranked = [one for cause in reversed(self.causes) for one in _ranked(cause.advice)]
        in_order = dict.fromkeys(one for _, one in sorted(ranked, key=lambda pair: pair[0]))
        there = [one for one in in_order if commands is None or one.command in {None, *commands}]
        first = {one.mends: one for one in reversed(there)}
        wait = next((one for one in there if one.act is Act.WAIT), None)  # the root's: for all
        told = [
            one
            for one in there
            if (not one.mends or one is first[one.mends])
            and (one.act is not Act.WAIT or one is wait)
        ]
        return [one for one in told if one.act is not Act.NOTHING] or there[:1]


def _ranked(advice: Iterable[Advice]) -> Iterator[tuple[tuple[bool, int], Advice]]:
    rank = 0
    for one in advice:
        if not one.text.startswith(_ALTERNATIVE):
            rank = max(rank, _RANKS.get(one.act, 0))
        yield (not one.is_urgent, rank), one


NOTHING = Advice(Act.NOTHING, "nothing to do")
LOG = Advice(Act.LOOK, "if it stays so, read in its log what it does")


def has_reader(look: Look, shard_id: str) -> bool:
    """Whether a process that is to read the shard runs, and may."""
    return not look.now.stored.paused and look.now.owner_of(shard_id) is not None


def is_at_end(look: Look, shard_id: str) -> bool:
    """Whether the shard was read to its end, by the batch under way at the latest."""
    progress = look.now.progress(shard_id)
    return progress is not None and progress.position.is_end
