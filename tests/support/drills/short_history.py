"""A short history of a drill that keeps all promises, to be spoiled by tests.

One shard of one key. The first process handles some records and is killed after its last commit;
its successor continues. Times are in steps of a second.
"""

from __future__ import annotations

from kinesis_spout.drills.history.events import Fault, History, Put, Sample, Step, Told
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord

SHARD, CHILD = "shardId-000000000000", "shardId-000000000001"
KEY = "ann"
FIRST, SECOND = "first", "second"
S = 1_000_000_000


def told(
    at_s: float, step: Step, number: int = -1, run: str = FIRST, *, shard: str = SHARD
) -> Told:
    """A line about the record with this number, whose sequence number is 100 more."""
    at_ns = round(at_s * S)
    if step is Step.COMMIT:
        return Told(at_ns, step, shard, run)
    return Told(at_ns, step, shard, run, 100 + number, KEY, number, 1)


def state(read_to: int, *unresolved: int, shard: str = SHARD) -> ShardState:
    """A state that has read up to the record with this number."""
    first = min(unresolved, default=read_to + 1)
    return ShardState(
        shard_id=shard,
        checkpoint=SequenceNumber(100 + first - 1),
        read_position=Position.after(SequenceNumber(100 + read_to)),
        unresolved=tuple(
            UnresolvedRecord(
                first=SequenceNumber(100 + one),
                last=SequenceNumber(100 + one),
                attempts=1,
                due_ms=0,
            )
            for one in unresolved
        ),
    )


def sample(at_s: float, *states: ShardState) -> Sample:
    return Sample(round(at_s * S), round(at_s * S), {one.shard_id: one for one in states})


def good() -> History:
    """Records 0 to 3; 2 and 3 were acked after the commit before last, and 3 comes again."""
    return History(
        puts=[Put(KEY, number, SHARD, 100 + number) for number in range(4)],
        told=[
            told(1, Step.GOT, 0),
            told(2, Step.ACK, 0),
            told(3, Step.GOT, 1),
            told(4, Step.ACK, 1),
            told(5, Step.GOT, 2),
            told(6, Step.COMMIT),
            told(8, Step.ACK, 2),
            told(9, Step.GOT, 3),
            told(10, Step.COMMIT),
            told(12, Step.ACK, 3),
            told(20, Step.GOT, 3, SECOND),
            told(21, Step.ACK, 3, SECOND),
            told(22, Step.COMMIT, run=SECOND),
        ],
        faults=[Fault("kill -9", 13 * S, 14 * S, run=FIRST)],
        samples=[sample(7, state(2, 2)), sample(11, state(3, 3)), sample(23, state(3))],
        tasks={FIRST: 0, SECOND: 0},
    )
