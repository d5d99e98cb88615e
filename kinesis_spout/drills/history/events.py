"""What happened in a soak: what was put, what each spout told, who was killed, what was stored.

A spout tells each step in a line of its own file, before the spout learns of it: a line is there
for each outcome that counted, whenever its process was killed. Times are of one monotonic clock,
which all processes of the machine share, in ns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.shard_state import ShardState


class Fate(StrEnum):
    """What the consumer does with a record."""

    ACKED = "acked"
    FAILS_ONCE = "fails once"
    FAILS_TWICE = "fails twice"
    FAILS_ALWAYS = "fails always"
    REJECTED = "rejected"

    @property
    def failures(self) -> float:
        return {"fails once": 1, "fails twice": 2, "fails always": float("inf")}.get(self, 0)

    @property
    def is_dead(self) -> bool:
        """Whether the record ends as a dead letter."""
        return self in (Fate.FAILS_ALWAYS, Fate.REJECTED)


def fate(number: int) -> Fate:
    """The fate of the record with this number."""
    of = {7: Fate.FAILS_ONCE, 57: Fate.FAILS_ONCE, 23: Fate.FAILS_TWICE}.get(number % 100)
    if of is None:
        of = {99: Fate.FAILS_ALWAYS, 151: Fate.REJECTED}.get(number % 200)
    return of or Fate.ACKED


class Step(StrEnum):
    """What a spout tells of a record; and that it has stored a shard's state."""

    GOT = "got"
    ACK = "ack"
    FAIL = "fail"
    REJECT = "reject"
    LETTER = "letter"
    COMMIT = "commit"


class Told(NamedTuple):
    """One line of a spout's file. `run` names the process. A commit is of no record: it has no key,
    number, sequence or attempt.
    """

    at_ns: int
    step: Step
    shard_id: str
    run: str
    sequence: int = -1
    key: str = ""
    number: int = -1
    attempt: int = 0
    reason: str = ""

    @property
    def record(self) -> tuple[str, int]:
        return self.shard_id, self.sequence

    @property
    def is_outcome(self) -> bool:
        """Whether its record is resolved by it."""
        return self.step in (Step.ACK, Step.LETTER)

    def line(self) -> bytes:
        """The text of the line, without the run."""
        of = [self.at_ns, self.step, self.shard_id, self.sequence, self.key, self.number]
        return " ".join([*(str(each) for each in of), str(self.attempt), self.reason]).encode()


def parse_line(line: bytes, run: str) -> Told:
    """Reads what `Told.line` has made. Raises ValueError."""
    at, step, shard, sequence, key, number, attempt, reason = line.decode().split(" ", 7)
    return Told(
        int(at), Step(step), shard, run, int(sequence), key, int(number), int(attempt), reason
    )


class Put(NamedTuple):
    """A record that was put on the stream. `at_ns`: just before that."""

    key: str
    number: int
    shard_id: str
    sequence: int
    at_ns: int = 0

    @property
    def record(self) -> tuple[str, int]:
        return self.shard_id, self.sequence


class Kill(NamedTuple):
    """A SIGKILL of a spout. `began_ns`: just before it; `ended_ns`: when the process was gone.
    `waits`: whether the successor could not see that the process was dead, and had to wait for the
    session to lapse. `free_ns`: when it had done so, and the successor was started; 0 if not known.
    """

    run: str
    task: int
    began_ns: int
    ended_ns: int
    waits: bool
    free_ns: int = 0


class Sample(NamedTuple):
    """The stored states, read between two times."""

    began_ns: int
    ended_ns: int
    states: dict[str, ShardState]


@dataclass(slots=True, kw_only=True)
class History:
    """`told` is in the order of its times. `tasks`: the task of each run."""

    puts: Sequence[Put] = ()
    told: Sequence[Told] = ()
    kills: Sequence[Kill] = ()
    samples: Sequence[Sample] = ()
    tasks: dict[str, int] = field(default_factory=dict)
