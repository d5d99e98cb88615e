"""Dead letters by their reason, counted from files of letters. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What the page needs of a dead letter. `count`: of how many records. `last_failure`: ISO."""

    message_id: str
    shard_id: str
    reason: str
    count: int = 1
    attempts: int = 0
    last_failure: str = ""


@dataclass(slots=True)
class ReasonCount:
    """The letters of one reason. `last_failure`: the latest, ISO; empty where none is known."""

    records: int = 0
    attempts: int = 0
    last_failure: str = ""
    shards: set[str] = field(default_factory=set)
    example: str = ""

    def add(self, letter: Letter) -> None:
        self.records += letter.count
        self.attempts = max(self.attempts, letter.attempts)
        self.last_failure = max(self.last_failure, letter.last_failure)
        self.shards.add(letter.shard_id)
        self.example = self.example or letter.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """What a place of dead letters holds. `notes`: sentences on what was left out. `letters`: how
    many different ones were read.
    """

    place: str
    reasons: dict[str, ReasonCount]
    letters: int = 0
    notes: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        return sum(one.records for one in self.reasons.values())

    def worst(self) -> list[tuple[str, ReasonCount]]:
        """The reasons, that with the most records first."""
        return sorted(self.reasons.items(), key=lambda one: (-one[1].records, one[0]))
