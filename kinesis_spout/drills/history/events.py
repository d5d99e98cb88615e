"""What happened in a drill: what was put, what each process of the job reported, which faults there
were, what was stored.

A consumer tells each step in a line of its process's own file, before the spout or the Spark source
learns of it: a line is there for each outcome that counted, whenever its process was killed. Times
are of one monotonic clock, which all processes of the machine share, in ns.

A process of the job is a run. A standalone spout delivers and commits record by record. A Spark job
tells all records of a batch before its function begins, and their outcomes after it returned.

As one JSON object (`encode_history`), a history can be judged again later. Sequence numbers and
hash keys are texts there, because they have more digits than numbers of JSON. What a run told is a
list of the lines of its file. Of the states of a sample only those are stored that differ from the
sample before. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from state.codec.values import decode_hook, encode_hook
from state.errors import InvalidPositionError, InvalidSequenceNumberError
from state.shard_state import ShardState

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT = 1
NO_NUMBER = -1  # of a record whose payload has none
RecordId: TypeAlias = tuple[str, int]
"""Shard and sequence number. They identify a record, because no drill puts aggregates."""


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


_FATES = {
    7: Fate.FAILS_ONCE,
    23: Fate.FAILS_TWICE,
    57: Fate.FAILS_ONCE,
    99: Fate.FAILS_ALWAYS,
    107: Fate.FAILS_ONCE,
    123: Fate.FAILS_TWICE,
    151: Fate.REJECTED,
    157: Fate.FAILS_ONCE,
}


def fate(number: int) -> Fate:
    """The fate of the record with this number."""
    return _FATES.get(number % 200, Fate.ACKED)


class Step(StrEnum):
    """What a process tells of a record; and that it has stored a shard's state."""

    GOT = "got"
    ACK = "ack"
    FAIL = "fail"
    REJECT = "reject"
    LETTER = "letter"
    COMMIT = "commit"


class Told(NamedTuple):
    """One line of a process's file. `run` names the process. A commit is of no record: it has no
    key, number, sequence or attempt. Whoever does not know a record's key and number leaves them
    out: the put of the record has them.
    """

    at_ns: int
    step: Step
    shard_id: str
    run: str
    sequence: int = -1
    key: str = ""
    number: int = NO_NUMBER
    attempt: int = 0
    reason: str = ""

    @property
    def record(self) -> RecordId:
        return self.shard_id, self.sequence

    @property
    def is_outcome(self) -> bool:
        """Whether its record is resolved by it."""
        return self.step in (Step.ACK, Step.LETTER)

    def line(self) -> bytes:
        """The text of the line, without the run and the line's end."""
        at_ns, step, shard_id, _, *record, reason = self
        return " ".join([*map(str, (at_ns, step, shard_id, *record)), *reason.split()]).encode()


def parse_line(line: bytes, run: str) -> Told:
    """Reads what `Told.line` has made. Raises ValueError."""
    at, step, shard, sequence, key, number, attempt, *reason = line.decode().split(" ", 7)
    record = int(sequence), key, int(number), int(attempt), "".join(reason)
    return Told(int(at), Step(step), shard, run, *record)


class Put(NamedTuple):
    """A record that was put on the stream. `number`: counted up for each key. `at_ns`: just before
    that.
    """

    key: str
    number: int
    shard_id: str
    sequence: int
    at_ns: int = 0

    @property
    def record(self) -> RecordId:
        return self.shard_id, self.sequence


class Fault(NamedTuple):
    """Something that was done to the world, and that the job must recover from.

    - `name`: what it was, for people: "kill -9 of the driver at plan-closed".
    - `began_ns`: just before it.
    - `ended_ns`: when it was over: the process was gone, the server answered again.
    - `run`: the process that it killed, or held up; "" if it was done to none. Its task is
      `History.tasks[run]`. A process that ended by itself because of another fault, and was started
      again, is a fault of its own: until then it may have resolved records that it could not store.
    - `rewinds`: what ZooKeeper holds may be older afterwards, because it was restored or removed by
      hand. States may move back once, and records that were stored as resolved are redelivered.
    """

    name: str
    began_ns: int
    ended_ns: int
    run: str = ""
    rewinds: bool = False


class Sample(NamedTuple):
    """The stored states, read between two times."""

    began_ns: int
    ended_ns: int
    states: dict[str, ShardState]


class ShardLife(NamedTuple):
    """A shard of the stream. `closed_ns`: None while it is open. `hash_start`, `hash_end`: its
    range of hash keys, both inclusive.
    """

    shard_id: str
    parents: tuple[str, ...]
    created_ns: int
    closed_ns: int | None
    hash_start: int
    hash_end: int


@dataclass(slots=True, kw_only=True)
class History:
    """Everything that a verdict is made of.

    - `told`: in the order of its times.
    - `faults`: in the order of their begin.
    - `tasks`: the task of each run; 0 for all runs of a Spark job.
    - `shards`: all that the stream ever had; empty if nobody looked.
    - `fates_known`: whether the consumer answers by `fate`. If it does not, each ack and each
      letter is right.
    - `retry_limit`: of the job; None if it is not known, or not the same for all records.
    """

    puts: Sequence[Put] = ()
    told: Sequence[Told] = ()
    faults: Sequence[Fault] = ()
    samples: Sequence[Sample] = ()
    tasks: dict[str, int] = field(default_factory=dict)
    shards: dict[str, ShardLife] = field(default_factory=dict)
    fates_known: bool = True
    retry_limit: int | None = None


# as JSON ------------------------------------------------------------------------------------------
class _StoredSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """`gone`: the shards of the sample before that have no state in this one."""

    began_ns: int
    ended_ns: int
    changed: dict[str, ShardState] = {}
    gone: tuple[str, ...] = ()


class _StoredHistory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`told`: by run. Puts and shards have texts for their large numbers. A put ends with a null:
    once, a sub-sequence number could be there.
    """

    format: int
    puts: list[tuple[str, int, str, int, int, None]] = []
    told: dict[str, list[str]] = {}
    faults: list[Fault] = []
    samples: list[_StoredSample] = []
    tasks: dict[str, int] = {}
    shards: list[ShardLife] = []
    fates_known: bool = True
    retry_limit: int | None = None


def encode_history(history: History) -> bytes:
    told: dict[str, list[str]] = {}
    for one in history.told:
        told.setdefault(one.run, []).append(one.line().decode())
    samples, known = [], dict[str, ShardState]()
    for sample in history.samples:
        states = sample.states
        changed = {shard: state for shard, state in states.items() if known.get(shard) != state}
        gone = tuple(known.keys() - states.keys())
        samples.append(_StoredSample(sample.began_ns, sample.ended_ns, changed, gone))
        known = states
    stored = {
        "format": FORMAT,
        "puts": [(*put[:3], str(put.sequence), put.at_ns, None) for put in history.puts],
        "told": told,
        "faults": history.faults,
        "samples": samples,
        "tasks": history.tasks,
        "shards": [(*life[:4], *map(str, life[4:])) for life in history.shards.values()],
        "fates_known": history.fates_known,
        "retry_limit": history.retry_limit,
    }
    return msgspec.json.encode(stored, enc_hook=encode_hook)


def decode_history(data: bytes) -> History:
    """Reads what `encode_history` has made. Raises ValueError, which says what is wrong."""
    try:
        stored = msgspec.json.decode(data, type=_StoredHistory, dec_hook=decode_hook, strict=False)
    except (msgspec.MsgspecError, InvalidPositionError, InvalidSequenceNumberError) as exc:
        raise ValueError(f"the file is not a drill's history: {exc}") from exc
    if stored.format != FORMAT:
        raise ValueError(
            f"the history has format {stored.format}, but this version reads only format {FORMAT}; "
            "use the kinesis-spout version that wrote it"
        )
    told = [parse_line(line.encode(), run) for run, lines in stored.told.items() for line in lines]
    samples, known = [], dict[str, ShardState]()
    for one in stored.samples:
        kept = {shard: state for shard, state in known.items() if shard not in one.gone}
        known = kept | one.changed
        samples.append(Sample(one.began_ns, one.ended_ns, known))
    return History(
        puts=[Put(*put[:5]) for put in stored.puts],
        told=sorted(told, key=lambda one: one.at_ns),
        faults=stored.faults,
        samples=samples,
        tasks=stored.tasks,
        shards={life.shard_id: life for life in stored.shards},
        fates_known=stored.fates_known,
        retry_limit=stored.retry_limit,
    )
