"""A history becomes a timeline: a lane for each shard, a band for each fault."""

from __future__ import annotations

from kinesis_spout.drills.history.events import History, Put, Sample, ShardLife, Step, Told
from kinesis_spout.drills.history.lanes import timeline
from kinesis_spout.drills.history.redeliveries import Redelivery
from kinesis_spout.html.timeline import Series
from state.position import SHARD_END, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState

S = 1_000_000_000
BEGAN = 100 * S
SHARD = "shardId-000000000000"
PUTS = [Put("ann", number, SHARD, 10 + number, BEGAN + number * S) for number in range(4)]
CLOSED = ShardLife(SHARD, ("shardId-gone",), BEGAN - S, BEGAN + 4 * S, 0, 99)


def told(step: Step, number: int, at_s: float, reason: str = "") -> Told:
    at_ns = BEGAN + round(at_s * S)
    return Told(at_ns, step, SHARD, "job-1", 10 + number, "ann", number, 1, reason)


def sample(at_s: float, checkpoint: int | None) -> Sample:
    """None: the shard is finished."""
    at = Position.after(SequenceNumber(checkpoint)) if checkpoint else SHARD_END
    state = ShardState(
        shard_id=SHARD,
        checkpoint=SequenceNumber(checkpoint) if checkpoint else None,
        read_position=at,
        lifecycle=Lifecycle.ACTIVE if checkpoint else Lifecycle.FINISHED,
    )
    at_ns = BEGAN + round(at_s * S)
    return Sample(at_ns - S // 2, at_ns, {SHARD: state})


def test_a_lane_is_a_shard_and_what_happened_in_it() -> None:
    """Times are seconds from the first put."""
    lines = [told(Step.GOT, 0, 1), told(Step.FAIL, 0, 2), told(Step.LETTER, 0, 3, "bad")]
    drawn = timeline(History(puts=PUTS, told=lines, shards={SHARD: CLOSED}), [], [])
    (lane,) = drawn.lanes
    assert (lane.name, lane.parents, lane.first_key, lane.last_key) == (
        SHARD,
        ("shardId-gone",),
        0,
        99,
    )
    assert (lane.began_s, lane.ended_s) == (-1.0, 4.0)
    assert dict(lane.events) == {
        Series.PUT: [(0.0, 1), (1.0, 1), (2.0, 1), (3.0, 1)],
        Series.READ: [(1.0, 1)],
        Series.FAILED: [(2.0, 1)],
        Series.DEAD_LETTER: [(3.0, 1)],
    }
    assert (drawn.began_s, drawn.ended_s) == (0.0, 3.0)


def test_duplicates_are_what_the_redeliveries_say() -> None:
    """A delivery of a record that was pending is none."""
    first, again = told(Step.GOT, 0, 1), told(Step.GOT, 0, 5)
    ack = told(Step.ACK, 0, 2)
    history = History(puts=PUTS, told=[first, ack, again])
    duplicate = Redelivery(again, ack, ack, explained=True, fault=None)
    pending = duplicate._replace(outcome=None)
    (lane,) = timeline(history, [], [duplicate]).lanes
    assert lane.events[Series.READ] == [(1.0, 1), (5.0, 1)]
    assert lane.events[Series.REPEATED] == [(5.0, 1)]
    assert lane.note == "4 put, 1 again"
    (lane,) = timeline(history, [], [pending]).lanes
    assert Series.REPEATED not in lane.events


def test_a_checkpoint_counts_the_records_that_it_passed() -> None:
    """Also where it moves back; a finished shard has passed all."""
    samples = [sample(1, 11), sample(2, 11), sample(3, 10), sample(4, None)]
    (lane,) = timeline(History(puts=PUTS, samples=samples), [], []).lanes
    assert lane.events[Series.CHECKPOINTED] == [(1.0, 2), (3.0, -1), (4.0, 3)]
