"""A history is read from JSON as it was written."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from kinesis_spout.drills.history.events import (
    Fault,
    History,
    Put,
    Sample,
    ShardLife,
    Step,
    Told,
    parse_line,
)
from kinesis_spout.drills.history.history_json import decode_history, encode_history
from state.position import SHARD_END, Position
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord

LONG = 49_545_115_243_490_985_018_280_067_714_973_144_582_180_062_593_244_200_961
SHARD, CHILD = "shardId-000000000000", "shardId-000000000001"
HISTORY = History(
    puts=[Put("ann", 0, SHARD, LONG, 5), Put("ann", 1, SHARD, LONG + 1, 6, 7)],
    told=[
        Told(10, Step.GOT, SHARD, "job-1", LONG, "ann", 0, 1),
        Told(11, Step.GOT, SHARD, "job-2", LONG + 1, "ann", 1, 1, sub=7),
        Told(12, Step.LETTER, SHARD, "job-1", LONG, "ann", 0, 4, "not yet ready"),
        Told(13, Step.COMMIT, SHARD, "job-2"),
        Told(14, Step.ACK, SHARD, "job-2", LONG + 1, sub=0),
    ],
    faults=[Fault("kill -9", 20, 21, run="job-1", rewinds=True)],
    samples=[
        Sample(
            30,
            31,
            {
                SHARD: ShardState(
                    shard_id=SHARD,
                    checkpoint=SequenceNumber(LONG),
                    read_position=Position.after(SequenceNumber(LONG + 1)),
                    unresolved=(
                        UnresolvedRecord(
                            first=SequenceNumber(LONG + 1, 7),
                            last=SequenceNumber(LONG + 1, 7),
                            attempts=1,
                            due_ms=9,
                            reason="not yet",
                        ),
                    ),
                ),
                CHILD: ShardState(shard_id=CHILD, read_position=Position.parse("TRIM_HORIZON")),
            },
        ),
        Sample(
            32,
            33,
            {
                SHARD: ShardState(
                    shard_id=SHARD, read_position=SHARD_END, lifecycle=Lifecycle.FINISHED
                )
            },
        ),
        Sample(34, 35, {}),
    ],
    tasks={"job-1": 0, "job-2": 0},
    shards={
        SHARD: ShardLife(SHARD, (), 1, 9, 0, (1 << 128) - 1),
        CHILD: ShardLife(CHILD, (SHARD,), 9, None, 0, (1 << 128) - 1),
    },
    fates_known=False,
    retry_limit=3,
)


EMPTY = History(puts=[], told=[], faults=[], samples=[])


@pytest.mark.parametrize("history", [HISTORY, EMPTY], ids=["full", "empty"])
def test_a_history_is_read_from_json_as_it_was_written(history: History) -> None:
    assert decode_history(encode_history(history)) == history


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[]", "not the history of a drill"),
        (b"{}", "not the history of a drill"),
        (b'{"format": 2}', "has format 2"),
        (encode_history(HISTORY).replace(b"AFTER:", b"ASIDE:"), "not the history of a drill"),
        (encode_history(HISTORY).replace(b"10 got", b"ten got"), "invalid literal"),
    ],
)
def test_another_text_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        decode_history(data)


def test_a_state_is_stored_when_it_changes() -> None:
    """An hour of samples is not an hour of equal states."""
    sample = HISTORY.samples[0]
    same = replace(EMPTY, samples=[Sample(at, at, sample.states) for at in range(100)])
    stored = msgspec.json.decode(encode_history(same))
    assert [len(one.get("changed", ())) for one in stored["samples"]] == [2] + [0] * 99
    assert decode_history(encode_history(same)) == same


@pytest.mark.parametrize("told", HISTORY.told, ids=str)
def test_a_line_is_read_as_it_was_written(told: Told) -> None:
    """With a reason of several words, and without one; of a user record, and of a whole one."""
    assert parse_line(told.line(), told.run) == told
