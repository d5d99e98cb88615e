"""Made-up histories of drills, for pages: of any size, and of names that no page may obey.

A job reads its shards, one of them is split, and is killed from time to time. Each tenth record
fails until it is a dead letter, each eleventh is rejected; after a fault some come again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import (
    Fault,
    History,
    Put,
    Sample,
    ShardLife,
    Step,
    Told,
)
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState

if TYPE_CHECKING:
    from collections.abc import Iterator

HASH_KEYS = 2**128
S = 1_000_000_000
BEGAN_NS = 5_000 * S
SECONDS = 60
HOSTILE = (
    "</script><img src=http://evil.example/x onerror=alert(1)>",
    "\"'><svg/onload=alert(1)>&amp;&#60;",
    "\x00\x1b[31m\r\n\t\x7f\x85",
    "abc\u202edlrow\u2066\u200b\ufeff\ud800",
    "]]>--><!--</style></title></svg>",
    "x" * 10_000,
)


@dataclass(slots=True, kw_only=True)
class MadeUp:
    """`names`: where keys, reasons, runs and faults take their names from."""

    shards: int = 4
    records: int = 4000
    faults: int = 2
    samples: int = 60
    names: tuple[str, ...] = ("job", "bad amount", "key")

    def history(self) -> History:
        """The same one each time."""
        names = cycle(self.names)
        lives = list(self._lives())
        puts = [
            Put(f"{next(names)}-{index % 8}", index // 8, lives[index % len(lives)].shard_id,
                1000 + index, self._at(index / self.records))
            for index in range(self.records)
        ]  # fmt: skip
        faults = [
            Fault(f"{next(names)} {index}", at_ns := self._at((index + 1) / (self.faults + 1)),
                  at_ns + S, next(names))
            for index in range(self.faults)
        ]  # fmt: skip
        told = [line for put in puts for line in self._lines(put, next(names), next(names))]
        again = [told[0]._replace(at_ns=fault.ended_ns + S, run=fault.run) for fault in faults]
        return History(
            puts=puts,
            told=sorted([*told, *again], key=lambda one: one.at_ns),
            faults=faults,
            samples=[self._sample(puts, (at + 1) / self.samples) for at in range(self.samples)],
            tasks=dict.fromkeys({one.run for one in told}, 0),
            shards={life.shard_id: life for life in lives},
        )

    @staticmethod
    def _at(share: float) -> int:
        return BEGAN_NS + round(share * SECONDS * S)

    def _lives(self) -> Iterator[ShardLife]:
        """The last shard is split in the middle of the time."""
        for index in range(self.shards):
            first, after = (HASH_KEYS * each // self.shards for each in (index, index + 1))
            closed_ns = self._at(0.5) if index == self.shards - 1 else None
            yield ShardLife(_name(index), (), BEGAN_NS - S, closed_ns, first, after - 1)
        middle = (first + after) // 2
        for index, ends in enumerate(((first, middle), (middle + 1, after - 1)), self.shards):
            yield ShardLife(_name(index), (_name(self.shards - 1),), self._at(0.5), None, *ends)

    @staticmethod
    def _lines(put: Put, run: str, reason: str) -> list[Told]:
        steps = [Step.GOT, Step.ACK]
        if put.sequence % 10 == 0:
            steps = [Step.GOT, Step.FAIL, Step.GOT, Step.FAIL, Step.LETTER]
        elif put.sequence % 11 == 0:
            steps = [Step.GOT, Step.REJECT, Step.LETTER]
        where = (put.shard_id, run, put.sequence, put.key, put.number, 1)
        return [
            Told(put.at_ns + (at + 1) * S // 10, step, *where, reason if at else "")
            for at, step in enumerate(steps)
        ]

    def _sample(self, puts: list[Put], share: float) -> Sample:
        states = {}
        for put in puts[: round(len(puts) * share)]:
            number = SequenceNumber(put.sequence)
            states[put.shard_id] = ShardState(
                shard_id=put.shard_id, checkpoint=number, read_position=Position.after(number)
            )
        return Sample(self._at(share) - S // 100, self._at(share), states)


def _name(index: int) -> str:
    return f"shardId-{index:012}"
