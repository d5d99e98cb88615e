"""Made-up histories of drills: a stream that is split and merged, a job that is killed.

The job reads a shard after its parents, delivers what was put a little later, and tells its
outcome. While a fault lasts it delivers nothing. After a fault it delivers some records again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from kinesis_spout.drills.history.events import (
    Fate,
    Fault,
    History,
    Put,
    Sample,
    ShardLife,
    Step,
    Told,
    fate,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState

HASH_KEYS = 2**128
S = 1_000_000_000
BEGAN_NS = 5_000 * S
_RESTART_NS = S  # from the end of a fault to the next delivery
_NOT_STORED_NS = S // 2  # what was acked so long before a fault comes again
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
    """What a history is to be like. `reshards`: splits and merges. `names`: where keys, reasons,
    runs and faults take their names from.
    """

    shards: int = 4
    records: int = 4000
    reshards: int = 3
    faults: int = 2
    seconds: float = 60.0
    samples: int = 60
    seed: int = 1
    names: tuple[str, ...] = ()
    random: Random = field(init=False)

    def name(self, plain: str) -> str:
        return self.random.choice(self.names) if self.names else plain

    def history(self) -> History:
        """The same one each time."""
        self.random = Random(self.seed)  # noqa: S311  # not a secret
        lives = self._lives()
        faults = self._faults()
        puts = self._puts(lives)
        told = self._told(puts, lives, faults)
        return History(
            puts=puts,
            told=told,
            faults=faults,
            samples=self._samples(puts, told, lives),
            tasks=dict.fromkeys([one.run for one in told], 0),
            shards={life.shard_id: life for life in lives},
        )

    def _at(self, share: float) -> int:
        return BEGAN_NS + round(share * self.seconds * S)

    def _faults(self) -> list[Fault]:
        found = []
        kinds = (
            "kill -9 of the driver at plan-closed",
            "kill -9 of all while ZooKeeper is away",
            "kill -9 of an executor",
        )
        for index in range(self.faults):
            began_ns = self._at(0.15 + 0.65 * index / max(self.faults, 1))
            lasted_s = self.random.uniform(0.5, self.seconds / 12 / max(self.faults / 4, 1))
            name = self.name(kinds[index % len(kinds)])
            ended_ns = began_ns + round(lasted_s * S)
            found.append(Fault(name, began_ns, ended_ns, self._run(index)))
        return found

    def _lives(self) -> list[ShardLife]:
        found: list[ShardLife] = []
        for index in range(self.shards):
            first, after = (HASH_KEYS * each // self.shards for each in (index, index + 1))
            found.append(self._life(len(found), (), BEGAN_NS - S, first, after - 1))
        for index in range(self.reshards):
            at_ns = self._at(0.2 + 0.6 * index / self.reshards)
            opened = sorted(
                (life for life in found if life.closed_ns is None), key=lambda one: one.hash_start
            )
            if index % 3 == 2 and len(opened) > 1:
                at = self.random.randrange(len(opened) - 1)
                low, high = parents = opened[at : at + 2]
                ranges = [(low.hash_start, high.hash_end)]
            else:
                parents = [self.random.choice(opened)]
                low, high = parents[0], parents[0]
                middle = (low.hash_start + low.hash_end) // 2
                ranges = [(low.hash_start, middle), (middle + 1, low.hash_end)]
            for parent in parents:
                found[found.index(parent)] = parent._replace(closed_ns=at_ns)
            names = tuple(parent.shard_id for parent in parents)
            for first, last in ranges:
                found.append(self._life(len(found), names, at_ns, first, last))
        return found

    @staticmethod
    def _life(
        number: int, parents: tuple[str, ...], created_ns: int, first: int, last: int
    ) -> ShardLife:
        return ShardLife(f"shardId-{number:012}", parents, created_ns, None, first, last)

    def _puts(self, lives: list[ShardLife]) -> list[Put]:
        found = []
        numbers: dict[str, int] = defaultdict(int)
        keys = [self.name(f"key-{index}") for index in range(max(self.shards, 8))]
        places = {key: self.random.randrange(HASH_KEYS) for key in keys}
        for index in range(self.records):
            at_ns = self._at(0.02 + 0.86 * index / max(self.records, 1))
            key = self.random.choice(keys)
            shard = self._shard_at(lives, places[key], at_ns)
            found.append(Put(key, numbers[key], shard, 1000 + index, at_ns))
            numbers[key] += 1
        return found

    def _shard_at(self, lives: list[ShardLife], place: int, at_ns: int) -> str:
        # The first lives divide the range evenly; a child has the name of its parents.
        life = lives[place * self.shards // HASH_KEYS]
        while life.closed_ns is not None and life.closed_ns <= at_ns:
            life = next(
                one
                for one in lives[self.shards :]
                if life.shard_id in one.parents and one.hash_start <= place <= one.hash_end
            )
        return life.shard_id

    def _told(self, puts: list[Put], lives: list[ShardLife], faults: list[Fault]) -> list[Told]:
        found: list[Told] = []
        parents = {life.shard_id: life.parents for life in lives}
        read_to: dict[str, int] = defaultdict(int)
        for put in puts:
            wait_ns = round(self.random.uniform(0.1, 0.6) * S)
            before = (read_to[one] for one in (put.shard_id, *parents[put.shard_id]))
            at_ns = self._awake(max(put.at_ns + wait_ns, *before) + 1, faults)
            read_to[put.shard_id] = at_ns
            found.extend(self._deliveries(put, at_ns, faults))
        return sorted(found, key=lambda one: one.at_ns)

    def _awake(self, at_ns: int, faults: list[Fault]) -> int:
        """That time, or a time after the fault that it is in; the order of times stays."""
        index = bisect_right(faults, at_ns, key=lambda one: one.began_ns) - 1
        if index < 0 or at_ns >= faults[index].ended_ns + _RESTART_NS:
            return at_ns
        fault = faults[index]
        return fault.ended_ns + _RESTART_NS + (at_ns - fault.began_ns) // 100

    def _deliveries(self, put: Put, at_ns: int, faults: list[Fault]) -> list[Told]:
        found = []

        def tell(step: Step, at_ns: int, attempt: int, reason: str = "") -> None:
            run = self._run(bisect_right(faults, at_ns, key=lambda one: one.began_ns))
            where = put.shard_id, run, put.sequence, put.key, put.number, attempt
            found.append(Told(at_ns, step, *where, reason))

        its = fate(put.number)
        failures = int(min(its.failures, 3))
        for attempt in range(1, failures + 1):
            tell(Step.GOT, at_ns, attempt)
            tell(Step.FAIL, at_ns + 1, attempt, self.name("ValueError: bad amount"))
            at_ns = self._awake(at_ns + S, faults)
        if its is Fate.FAILS_ALWAYS:
            tell(Step.LETTER, at_ns, failures, self.name("ValueError: bad amount"))
            return found
        tell(Step.GOT, at_ns, failures + 1)
        if its is Fate.REJECTED:
            tell(Step.REJECT, at_ns + 1, 1)
            tell(Step.LETTER, at_ns + 2, 1, self.name("rejected: not an order"))
            return found
        tell(Step.ACK, at_ns + 1, failures + 1)
        after = bisect_right(faults, at_ns, key=lambda one: one.began_ns)
        if after < len(faults) and faults[after].began_ns - at_ns < _NOT_STORED_NS:
            again_ns = self._awake(faults[after].began_ns, faults) + self.random.randrange(S)
            tell(Step.GOT, again_ns, 1)
            tell(Step.ACK, again_ns + 1, 1)
        return found

    def _run(self, number: int) -> str:
        return f"{self.names[number % len(self.names)] if self.names else 'job'}-{number + 1}"

    def _samples(self, puts: list[Put], told: list[Told], lives: list[ShardLife]) -> list[Sample]:
        """Below a shard's checkpoint all records have an outcome, for some time."""
        stored_ns: dict[tuple[str, int], int] = {}
        for one in told:
            if one.is_outcome:
                stored_ns[one.shard_id, one.sequence] = one.at_ns + _NOT_STORED_NS
        rest: dict[str, list[Put]] = defaultdict(list)
        for put in reversed(puts):
            rest[put.shard_id].append(put)
        states: dict[str, ShardState] = {}
        found = []
        for index in range(1, self.samples + 1):
            at_ns = self._at(index / self.samples)
            for life in lives:
                if life.created_ns <= at_ns:
                    self._advance(life, rest[life.shard_id], stored_ns, states, at_ns)
            found.append(Sample(at_ns - S // 100, at_ns, dict(states)))
        return found

    @staticmethod
    def _advance(
        life: ShardLife,
        rest: list[Put],
        stored_ns: dict[tuple[str, int], int],
        states: dict[str, ShardState],
        at_ns: int,
    ) -> None:
        checkpoint = None
        while rest and stored_ns[life.shard_id, rest[-1].sequence] <= at_ns:
            checkpoint = SequenceNumber(rest.pop().sequence)
        before = states.get(life.shard_id)
        if before is None or checkpoint is not None:
            states[life.shard_id] = before = ShardState(
                shard_id=life.shard_id,
                checkpoint=checkpoint,
                read_position=Position.after(checkpoint) if checkpoint else TRIM_HORIZON,
                parents=life.parents,
            )
        is_closed = life.closed_ns is not None and life.closed_ns <= at_ns
        if is_closed and not rest and not before.finished:
            states[life.shard_id] = replace(
                before, read_position=SHARD_END, lifecycle=Lifecycle.FINISHED
            )
